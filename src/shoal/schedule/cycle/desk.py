"""What is done while a decision is made, step by step, and what that makes of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.compositions import composed
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.steps import Deny, Grow, Move, Plan, Preempt, Reserve, Shrink, Start
from shoal.schedule.cycle.table import Table
from shoal.schedule.cycle.units import own_priority
from shoal.schedule.placing.asks import Placement, Tasks

__all__ = ["Desk"]


class Desk(Table):
    """Mutable. Raises ValueError for rows that contradict each other."""

    def composed(self, asked: Asked) -> Asked:
        """Of those roles for which there is room by now."""
        found = composed(asked, (self.current.room, self.later.room))
        self.asked[asked.job.name] = found
        return found

    def start(self, asked: Asked, placement: Placement, *, kept: bool = False) -> None:
        """On capacity that is free now, and taken in `current` already; `kept`: what was kept for it."""
        job = asked.job
        tasks = job.reserved if kept else asked.tasks(placement, self.names, job.tasks)
        before = self.present.get(job.name, ())
        self.settled.add(job.name)
        amounts = asked.ask(asked.counts(tasks), new=not before)
        self.later.occupy(placement)
        for books in (self.current, self.later):
            books.charge(asked, amounts)
        self.present[job.name] = (*before, *tasks)
        self._changed.add(job.name)
        self.effects += 1
        self._gains(asked)
        if not job.tasks and job.name not in {each.job.name for each in self.withdrawn}:
            self._fresh.add(job.name)
        self._told_to_wait_no_more(job.name)
        kind = Grow if before else Start
        self._starting.append(kind(job=job.name, tasks=tasks, code="Started"))

    def start_alike(self, jobs: Sequence[Asked], places: Tasks) -> None:
        """As `start`, one after the other, of jobs of one kind that have nothing yet and ask for a task
        each; these are their places, and taken in `current` already."""
        first = jobs[0]
        role = first.needs.names[0]
        self.later.room.occupy(places)
        for books in (self.current, self.later):
            books.charge_times(first, len(jobs))
        nodes: list[int] = places.node.tolist()
        slots: list[list[int]] = places.slots.tolist()
        for asked, node, gpus in zip(jobs, nodes, slots, strict=True):
            name = asked.job.name
            tasks = (Task(role=role, index=0, node=self.names[node], gpus=tuple(gpus)),)
            self.present[name] = tasks
            self._told_to_wait_no_more(name)
            self._starting.append(Start(job=name, tasks=tasks, code="Started"))
        names = {asked.job.name for asked in jobs}
        self.settled |= names
        self._changed |= names
        self._fresh |= names
        self.effects += len(jobs)
        self._gains(first)

    def reserve(
        self,
        asked: Asked,
        placement: Placement,
        code: str,
        evidence: dict[str, Any],
        at: Stamp | None = None,
    ) -> None:
        """Among what comes free, and taken in `later` already; `at`: by then, as those are told who wait
        behind it."""
        name = asked.job.name
        self.keep(asked, asked.tasks(placement, self.names, asked.job.tasks), code, evidence)
        if at is not None:
            self._reserved[name] = msgspec.structs.replace(self._reserved[name], at=at)

    def keep(self, asked: Asked, tasks: tuple[Task, ...], code: str, evidence: dict[str, Any]) -> None:
        """As `reserve`, with these very tasks."""
        self.settled.add(asked.job.name)
        self.effects += 1
        self._told_to_wait_no_more(asked.job.name)
        self._keep(asked, tasks)
        step = Reserve(job=asked.job.name, tasks=tasks, code=code, evidence=evidence)
        self._reserved[step.job] = step

    def take_place(
        self,
        asked: Asked,
        leaving: Mapping[str, Sequence[Task]],
        to: Placement,
        code: str = "Preempted",
    ) -> None:
        """These tasks of these jobs are told to go, and it is kept their place; or has it at once, where
        nobody has been there before this plan."""
        job = asked.job
        for name, tasks in leaving.items():
            other = self.asked[name].job
            equal = other.priority >= job.priority and other.queue == job.queue
            over = equal and len(tasks) == len(self.offered(name)) and self.turn_over(other)
            why = "TurnOver" if over else code
            self.depart(self.asked[name], tasks, job.name, why, priority=job.priority)
        told = sorted(name for name in leaving if name in self._told)
        amounts = asked.ask([len(tasks) for tasks in to], new=not job.tasks)
        stopping = any(task.stopping for task in job.tasks)
        if not (told or stopping or self.refused_now(asked, amounts)) and self.current.take(to):
            self.start(asked, to)
            return
        self.later.occupy(to)
        code = "Preempting" if told else "Departing"
        self.reserve(asked, to, code, {"waitsFor": told} if told else {})

    def take_more(self, asked: Asked, leaving: Mapping[str, Sequence[Task]], to: Placement) -> None:
        """Besides the place that it was kept in this plan, it is kept that of these."""
        step = self._reserved[asked.job.name]
        for name, tasks in leaving.items():
            self.depart(self.asked[name], tasks, step.job, "Preempted", priority=asked.job.priority)
        tasks = asked.tasks(to, self.names, (*asked.job.tasks, *step.tasks))
        self.effects += 1
        for books in (self.current, self.later):
            books.occupy(to)
        self.later.charge(asked, asked.ask(asked.counts(tasks), new=False))
        names = sorted({*step.evidence["waitsFor"], *(name for name in leaving if name in self._told)})
        self._reserved[step.job] = msgspec.structs.replace(
            step, tasks=(*step.tasks, *tasks), evidence={"waitsFor": names}
        )

    def keep_on(self, asked: Asked) -> None:
        """The place that it was kept before this plan."""
        self.keep(asked, asked.job.reserved, "Departing", {})
        if not asked.job.tasks:
            self._kept_on.add(asked.job.name)
            self._changed.add(asked.job.name)

    def date(self, step: Reserve) -> None:
        """It is promised a date, and nothing on nodes before that."""
        self._told_to_wait_no_more(step.job)
        self._reserved[step.job] = step

    def by(self, asked: Asked, at: Stamp, place: Placement) -> None:
        """It is kept a place in this plan already: by then, and that is its place."""
        name = asked.job.name
        if name in self._reserved:
            tasks = asked.tasks(place, self.names, ())
            self._reserved[name] = msgspec.structs.replace(self._reserved[name], at=at, place=tasks)

    def depart(
        self, asked: Asked, tasks: Sequence[Task], beneficiary: str, code: str, **why: Any
    ) -> None:
        """These are told to go. Who was started in this plan is not, nor is what somebody has grown by;
        and who was kept a place is not kept it: it holds nothing yet."""
        job = asked.job
        self.effects += 1
        grown = self._grown_back(asked)
        tasks = [task for task in tasks if task not in grown]
        if not tasks:
            return
        if job.name in self._fresh:
            self._withdraw(asked)
            return
        if job.name in self._kept_on:
            self._let_go(asked)
            return
        self._told.add(job.name)
        gone = {(task.role, task.index) for task in tasks}
        staying = tuple(task for task in self.present[job.name] if (task.role, task.index) not in gone)
        kind = Shrink if staying else Preempt
        ordered = tuple(sorted(tasks, key=lambda task: (task.role, task.index)))
        self._giving.append(
            kind(job=job.name, tasks=ordered, beneficiary=beneficiary, code=code, evidence=why)
        )
        self._leave(asked, ordered, last=not staying)
        self._changed.add(job.name)
        self.present[job.name] = staying
        if not staying:
            del self.present[job.name]

    def _told_to_wait_no_more(self, job: str) -> None:
        """It was looked at before in this plan, and had to wait then."""
        if self.denied.pop(job, None) is None:
            self._reserved.pop(job, None)

    def _withdraw(self, asked: Asked) -> None:
        """It is not started by this plan after all."""
        name = asked.job.name
        self._fresh.discard(name)
        self._give_back(asked, self.present.pop(name), new=True)
        self._starting = [step for step in self._starting if step.job != name]
        self._again(asked)

    def _let_go(self, asked: Asked) -> None:
        """The place that it was kept before this plan is not kept any more."""
        name = asked.job.name
        self._kept_on.discard(name)
        self._reserved.pop(name, None)
        self.release(asked)
        self._again(asked)

    def _again(self, asked: Asked) -> None:
        name = asked.job.name
        self.settled.discard(name)
        self._changed.add(name)
        self.withdrawn.append(asked)

    def move(self, asked: Asked, to: Placement, beneficiary: str) -> None:
        """All of it goes, and comes back elsewhere; `later` has it there already."""
        job = asked.job
        tasks = self.present.pop(job.name)
        self._changed.add(job.name)
        new = asked.tasks(to, self.names, ())
        self.settled.add(job.name)
        self.effects += 1
        self.current.occupy(to)
        self.departing = True
        step = Move(job=job.name, tasks=tasks, to=new, beneficiary=beneficiary, code="Consolidated")
        self._giving.append(step)

    def deny(self, step: Deny) -> None:
        """It waits."""
        self._told_to_wait_no_more(step.job)
        self.denied[step.job] = step

    def plan(self, again_at: Stamp | None) -> Plan:
        """The steps, in an order that is safe to cut."""
        grown = (Grow(job=name, tasks=tasks, code="Grown") for name, tasks in self._grown.items())
        steps = (*self._reserved.values(), *self._giving, *self._starting, *grown, *self.denied.values())
        order = tuple([asked.job.name for asked in self.waiting])
        return Plan(steps=steps, again_at=again_at, order=order)

    def grown(self, asked: Asked, placement: Placement) -> None:
        """More tasks, which are taken and charged already."""
        job = asked.job
        tasks = asked.tasks(placement, self.names, (*job.tasks, *self.present[job.name]))
        self.present[job.name] = (*self.present[job.name], *tasks)
        self._grown[job.name] = (*self._grown.get(job.name, ()), *tasks)
        self._gains(asked)
        self._changed.add(job.name)

    def _grown_back(self, asked: Asked) -> tuple[Task, ...]:
        """By what it has grown in this plan; it has not any more."""
        name = asked.job.name
        tasks = self._grown.pop(name, ())
        if not tasks:
            return ()
        self.present[name] = tuple(task for task in self.present[name] if task not in tasks)
        self._changed.add(name)
        self._give_back(asked, tasks, new=False)
        return tasks

    def _give_back(self, asked: Asked, tasks: Sequence[Task], *, new: bool) -> None:
        """What was there by this plan alone."""
        amounts = asked.ask(asked.counts(tasks), new=new)
        for books in (self.current, self.later):
            for each in asked.placement(tasks):
                books.room.give_back(each)
            books.charge(asked, amounts, -1)

    def gained(self) -> dict[int, int]:
        """Queues of which something was started or has grown since this was asked last, with the lowest
        priority of it in the laws."""
        found, self._gained = self._gained, {}
        return found

    def _gains(self, asked: Asked) -> None:
        priority = own_priority(asked.job, surplus=asked.needs.elastic)
        self._gained[asked.queue] = min(priority, self._gained.get(asked.queue, priority))

    def changed(self) -> set[str]:
        """Who holds more or less than when this was asked last."""
        found, self._changed = self._changed, set()
        self._touched |= found
        return found

    def _keep(self, asked: Asked, tasks: tuple[Task, ...]) -> None:
        """Taken on nodes (in `later` it is so already), and in use later: now those are in use who leave
        for it."""
        placement = asked.placement(tasks)
        amounts = asked.ask(asked.counts(tasks), new=not asked.present)
        self.current.occupy(placement)
        self.later.charge(asked, amounts)

    def release(self, asked: Asked) -> None:
        """What was kept for it is not kept any more."""
        placement = asked.place_kept
        amounts = asked.ask(asked.counts(asked.job.reserved), new=not asked.present)
        for books in (self.current, self.later):
            for tasks in placement:
                books.room.give_back(tasks)
        self.later.charge(asked, amounts, -1)

    def _leave(self, asked: Asked, tasks: Sequence[Task], *, last: bool) -> None:
        if asked.job.name in self.ending:
            return
        for each in asked.placement(tasks):
            self.later.room.give_back(each)
        self.later.charge(asked, asked.ask(asked.counts(tasks), new=last), -1)
        self.departing = True
