"""What is so at this point of a decision: both books, who holds what, what has been done by now."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import numpy as np

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.compositions import composed
from shoal.schedule.cycle.fitting import Fitting
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.ground import Ground
from shoal.schedule.cycle.rows import Cluster, Job, Rules, Task
from shoal.schedule.cycle.steps import Deny, Grow, Move, Preempt, Reserve, Shrink, Start

__all__ = ["Table"]


class Table:
    """Read by all; changed by `Desk` alone. Raises ValueError for rows that contradict each other."""

    def __init__(self, ground: Ground, cluster: Cluster, rules: Rules, now: Stamp) -> None:
        self.cluster, self.rules, self.now = cluster, rules, now
        self.columns, self.names = ground.columns, ground.names
        self.asked = ground.asked
        self.units, self.held = ground.units, ground.held
        self.sized, self.below = ground.sized, ground.below
        self.sizes = ground.sizes
        """Sizes that classes of jobs were given the last time, and from what (`sizes.targets`)."""
        self.current, self.later, self.ending = ground.open(now, rules.notice_seconds)
        """In `ending`: whose wall time is over so soon that `later` is without them."""
        self.holdings = ground.holdings
        """What was there and stayed when this decision began, as arrays."""
        self.present = dict(ground.present)
        """Of each job that holds something: what is there and stays."""
        going = (task for asked in ground.leaving.values() for task in asked.job.tasks if task.stopping)
        self.emptying = {task.node for task in going}
        """Nodes on which somebody was told to go: a place kept there is kept to the letter. One among
        what ends by itself is found anew each time, in the order of dates."""
        self.departing = bool(ground.leaving or self.ending)
        """Whether anybody who was told to go is still there."""
        self.denied: dict[str, Deny] = {}
        self.waiting: list[Asked] = []
        """All that are served in this plan, in their order."""
        self.classes: dict[str, int] = {}
        """Of each of them (`ranks`)."""
        self.targets: dict[str, int] = {}
        """How many tasks of their elastic role those jobs are to have that say how fast they are."""
        self.settled: set[str] = set()
        """Who has been started, moved or kept a place in this plan: nothing else is done to it."""
        self.withdrawn: list[Asked] = []
        """Who was started in this plan, and then had to leave its place to others: it waits again, and
        leaves none a second time."""
        self.effects: int = 0
        """So many things have been done by now, besides telling who waits why."""
        self._fresh: set[str] = set()
        self._grown: dict[str, tuple[Task, ...]] = {}
        self._gained: dict[int, int] = {}
        self._kept_on: set[str] = set()
        if ground.composed:
            # what a job is made up of is found anew for each decision
            rooms = (self.current.room, self.later.room, ground.empty)
            self.asked = {name: composed(asked, rooms) for name, asked in self.asked.items()}
        self._changed: set[str] = set()
        self._touched: set[str] = set()
        self._holders: dict[str, list[str]] = {}
        self._told: set[str] = set()
        self.fitting = Fitting(ground, self.later.room)
        stated = [bool(queue.budgets) for queue in cluster.queues]
        self.budgeted = [any(stated[node] for node in path) for path in self.columns.tree.paths]
        """Of each queue, whether a budget may pay for its jobs."""
        self._reserved: dict[str, Reserve] = {}
        self._giving: list[Shrink | Preempt | Move] = []
        self._starting: list[Start | Grow] = []

    def queue(self, job: Job) -> int:
        """Its row."""
        return self.columns.queue_at[job.queue]

    def takes(self) -> list[Asked]:
        """Who has nothing yet, and is kept a place in this plan that others leave for it."""
        steps = [step for step in self._reserved.values() if step.code == "Preempting"]
        return [self.asked[step.job] for step in steps if not self.asked[step.job].job.tasks]

    def is_new(self, job: str) -> bool:
        """Whether nothing of it was there before this plan: what it has may still be taken back."""
        return job in self._fresh or job in self._kept_on

    def new_holdings(self) -> list[tuple[int, tuple[float, ...]]]:
        """By queue: what may still be taken back of what was given in this plan."""
        grown = [name for name in self._grown if name not in self._fresh]
        held = [(self.asked[name], self.present[name]) for name in sorted(self._fresh)]
        held += [(self.asked[name], self._grown[name]) for name in grown]
        return [
            (self.queue(asked.job), asked.ask(asked.counts(tasks), new=False)) for asked, tasks in held
        ]

    def touched(self) -> set[str]:
        """Who holds, or may have held meanwhile, something else than when this decision began."""
        return self._touched | self._changed

    def holders(self, resource: str, most: int) -> list[str]:
        """The first few of those who hold most of it in this plan, when it was asked first."""
        if resource not in self._holders:
            at = self.columns.names.index(resource)
            touched = self.touched()
            rows = self.holdings.rows(touched)
            amounts = self.holdings.held[rows, at] + self.holdings.lent[rows, at]
            few = np.partition(amounts, -most)[-most:].min() if len(amounts) > most else 0
            names = [asked.job.name for asked in self.holdings.of(rows[amounts >= few])]
            names += [name for name in touched if name in self.present]
            held: list[tuple[float, str]] = []
            for name in names:
                asked = self.asked[name]
                amount = asked.ask(self.counts(asked), new=False)[at]
                if amount:
                    held.append((-amount, name))
            self._holders[resource] = [name for _, name in nsmallest(most, held)]
        return self._holders[resource]

    def offered(self, job: str) -> tuple[Task, ...]:
        """What others may take from it: what is there, or what it was kept before this plan. Nothing,
        where it has been moved, or has just been kept a place that others leave for it, or ends by
        itself."""
        if job in self._kept_on:
            return self.asked[job].job.reserved
        spared = job in self.settled or self.asked[job].job.reserved or job in self.ending
        return self.present.get(job, ()) if job in self._fresh or not spared else ()

    def class_of(self, asked: Asked) -> int:
        """Whoever has a date keeps it from those of its own class, and of lower ones."""
        return self.classes.get(asked.job.name, 2 * asked.job.priority)

    def began(self, job: Job) -> Stamp:
        """When it began to hold what it holds: now, where this plan has started it."""
        return job.since if self.asked[job.name].present else self.now

    def starting(self) -> set[str]:
        """Who starts, or grows, in this plan."""
        return {*self._grown, *(step.job for step in self._starting)}

    def most(self, asked: Asked) -> tuple[int, ...]:
        """How many tasks of each role it may grow to: its target, where it has one."""
        target = self.targets.get(asked.job.name)
        if target is None:
            return asked.room
        rows = zip(asked.room, asked.minimum, asked.maximum, strict=True)
        return tuple(min(room, target) if least < most else room for room, least, most in rows)

    def counts(self, asked: Asked) -> tuple[int, ...]:
        """How many of each role are there and stay."""
        present = self.present.get(asked.job.name, ())
        return asked.there if present is asked.present else asked.counts(present)

    def ends(self, job: Job) -> Stamp:
        """When its capacity is back at the latest; who holds nothing begins now."""
        return self.began(job) + job.longest_seconds

    def turn_over(self, job: Job) -> bool:
        """Whether it will have held something for a turn when the notice is over, and nobody knows for
        how long it will."""
        turn, told = self.rules.minimum_run_seconds, self.now + self.rules.notice_seconds
        return bool(turn) and job.wall_seconds is None and told >= self.began(job) + turn

    def free_at(self, asked: Asked) -> Stamp:
        """When the place that is kept for it is free at the latest: when those have ended that are on
        its nodes, and whose time is over soon."""
        tasks = self._reserved[asked.job.name].tasks
        nodes = {task.node for task in tasks}
        ends = [
            self.ends(self.asked[name].job)
            for name in self.ending
            if any(task.node in nodes for task in self.present.get(name, ()))
        ]
        return max([self.now, *ends])

    def kept_tasks(self, job: str) -> tuple[Task, ...]:
        """The place that it is kept by this plan."""
        return self._reserved[job].tasks if job in self._reserved else ()

    def date_of(self, job: str) -> Stamp | None:
        """What it is promised by this plan."""
        return self._reserved[job].at if job in self._reserved else None

    def is_kept_a_place(self, job: str) -> bool:
        """By this plan."""
        return job in self._reserved and bool(self._reserved[job].tasks)

    def told_to_give(self, job: str) -> bool:
        """In this plan."""
        return job in self._told

    def kept_for(self) -> list[tuple[Asked, tuple[int, ...]]]:
        """Who has been kept a place in this plan, and how many tasks of each role."""
        kept = [(self.asked[step.job], step.tasks) for step in self._reserved.values() if step.tasks]
        return [(asked, asked.counts(tasks)) for asked, tasks in kept]

    def kept_places(self) -> list[tuple[Asked, tuple[Task, ...], Stamp]]:
        """Who has been kept a place in this plan, which, and from when on it is free."""
        kept = [(self.asked[step.job], step.tasks) for step in self._reserved.values() if step.tasks]
        return [(asked, tasks, self.free_at(asked)) for asked, tasks in kept]

    def moving(self) -> list[tuple[Asked, tuple[Task, ...], Stamp]]:
        """Who goes on elsewhere, where, and since when."""
        steps = [step for step in self._giving if isinstance(step, Move)]
        return [(self.asked[step.job], step.to, self.now) for step in steps]

    def refused_now(self, asked: Asked, amounts: Sequence[float]) -> bool:
        """Whether its queue, its user, or licences do not let it start on what is free."""
        return not (self.current.allows(asked, amounts) and self.later.allows(asked, amounts))
