"""A job as placing knows it: its gang, its tasks as arrays, and back again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import gt
from typing import Any

import numpy as np

from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.needs import Kinds
from shoal.schedule.cycle.rows import Job, Task
from shoal.schedule.cycle.sizes.outlook import check, elastic_role
from shoal.schedule.placing.asks import Gang, Placement, Tasks
from shoal.schedule.placing.consolidate import Mover

Reason = tuple[str, dict[str, Any]]

__all__ = ["Asked", "Reason", "reached"]


class Asked:
    """What one job asks for, and what follows from its row alone: it lives as long as the row. Counts
    are one number for each of its roles."""

    def __init__(
        self,
        job: Job,
        columns: Columns,
        kinds: Kinds,
        number: int = 0,
        counts: Sequence[int] | None = None,
    ) -> None:
        """`counts`: its minimum is of those, where it may be of several roles."""
        self.job = job
        self.number = number
        """No other job has it, as long as this one is there."""
        self._columns, self._kinds = columns, kinds
        self.needs = needs = kinds.of(job, counts)
        self.open = needs.open
        """Whether its minimum may be of other roles too (`compositions`)."""
        self.queue = columns.queue_at[job.queue]
        """Its row."""
        self._node_at = columns.node_at
        self.shapes, self.vectors = needs.shapes, needs.vectors
        self.minimum, self.maximum = needs.minimum, needs.maximum
        self.reach = needs.reach
        self.need = needs.number
        """Whoever has the same fits where this fits."""
        going = [task for task in job.tasks if task.stopping] if job.tasks else []
        self.present = job.present if going else job.tasks
        """What is there and is to stay."""
        self.leaving = bool(going)
        """Whether anything else is there."""
        self.there = needs.none
        """How many of each role that is."""
        self.reached = self.too_many = False
        """Whether it has its minimum, and whether there are more of any role than there may be."""
        self.missing = self.minimum
        """Of each role, up to the minimum."""
        if self.present:
            self.there = there = self.counts(self.present)
            self.reached = reached(there, self.minimum)
            self.too_many = any(map(gt, there, self.maximum))
            rows = zip(self.minimum, there, strict=True)
            self.missing = tuple([max(0, low - count) for low, count in rows])
        self.lacks = self.ask(self.missing, new=not job.tasks)
        """The same by column."""
        self.never: list[Reason] | None = None
        """What no waiting helps against, once somebody has asked (`reasons`)."""
        self.holds = bool(job.tasks or job.reserved)
        """Whether anything is taken for it."""
        self.waiting_since = job.waiting_since
        self.own_order = (-job.priority, not self.present, self.waiting_since, job.name)
        """Its place in its queue."""
        self.fresh = not (self.holds or job.suspended)
        """Whether it waits, and nothing is there or kept for it."""
        self.rests = not (self.fresh or job.reserved) and (job.suspended or self.reached)
        """Whether it asks for nothing that it needs, and nothing is kept for it."""
        self.ends = job.since + job.longest_seconds if self.present else math.inf
        """When what is present is back at the latest."""
        self.room = self.maximum
        """How many of each role there may be until those that were told to go are gone."""
        if going:
            pairs = zip(self.maximum, self.counts(going), strict=True)
            self.room = tuple(most - count for most, count in pairs)

    def of(self, counts: Sequence[int]) -> Asked:
        """The same job, its minimum of these."""
        return Asked(self.job, self._columns, self._kinds, self.number, counts)

    def gang(self, least: Sequence[int], most: Sequence[int]) -> Gang:
        """That many tasks of each role."""
        return self.needs.gang(least, most)

    def ask(self, counts: Sequence[int], *, new: bool) -> tuple[float, ...]:
        """By column of queues; `new`: the job itself counts."""
        return self.needs.ask(counts, new=new and self.job.counts)

    @cached_property
    def lacks_indices(self) -> bool:
        """Whether what it misses has to wait for tasks that were told to go."""
        rows = zip(self.there, self.missing, self.room, strict=True)
        return any(count + missing > room for count, missing, room in rows)

    @cached_property
    def wish(self) -> tuple[int, tuple[float, ...]]:
        """Its queue, and by column what it starts with; jobs are not counted."""
        return self.queue, self.ask(self.minimum, new=False)

    @cached_property
    def kind(self) -> int:
        """What one of a kind is told, and what is done for it, holds for the other as well."""
        job = self.job
        return self._kinds.number(
            (
                self.queue, job.user, job.priority, self.need,
                tuple(job.shared.items()) if job.shared else (), self.lacks, job.wall_seconds,
                bool(job.tasks), job.preemptible,
            )
        )  # fmt: skip

    @cached_property
    def elastic(self) -> int | None:
        """The role of which it may have more or fewer tasks; None: there is none, or more than one."""
        role = elastic_role(self.job)
        return None if role is None else self.job.roles.index(role)

    @cached_property
    def sized(self) -> int | None:
        """That role, where it is known how fast the job is with how many. Raises ValueError for curves
        and amounts of work that cannot be."""
        check(self.job)
        return self.elastic if self.job.speeds and self.job.preemptible else None

    @cached_property
    def lent(self) -> tuple[int, ...]:
        """What is there beyond the minimum and may be taken back, as `Needs.amounts`."""
        return self.needs.amounts(self.surplus(self.present))

    @cached_property
    def held(self) -> tuple[int, ...]:
        """And the rest of it."""
        rows = zip(self.there, self.surplus(self.present), strict=True)
        return self.needs.amounts(tuple([count - more for count, more in rows]))

    @cached_property
    def placed(self) -> Placement:
        """`present` as arrays."""
        return self.placement(self.present)

    @cached_property
    def moves(self) -> bool:
        """Whether `present` may be moved, as far as its row says."""
        return self.may_move(self.present)

    @cached_property
    def mover(self) -> Mover:
        """`present`, as it is moved."""
        return Mover(self.gang(self.there, self.there), self.placed)

    @cached_property
    def place_kept(self) -> Placement:
        """The place that it was kept, as arrays."""
        return self.placement(self.job.reserved)

    def may_move(self, there: Sequence[Task]) -> bool:
        """Whether these tasks, if they are all that it has."""
        job = self.job
        whole = len(there) == len(job.tasks) and not job.reserved
        free = job.movable and job.preemptible
        return whole and free and all(task.preemptible for task in there)

    def counts(self, tasks: Sequence[Task]) -> tuple[int, ...]:
        """How many of each role."""
        names = self.needs.names
        if len(names) == 1:
            return (len(tasks),)
        if not tasks:
            return (0,) * len(names)
        found = dict.fromkeys(names, 0)
        for task in tasks:
            found[task.role] += 1
        return tuple(found.values())

    def surplus(self, tasks: Sequence[Task]) -> tuple[int, ...]:
        """Of these tasks of each role, how many are beyond the minimum and may be taken back."""
        if not self.job.preemptible:
            return (0,) * len(self.minimum)
        rows = zip(self.counts(tasks), self.minimum, strict=True)
        return tuple([max(0, count - low) for count, low in rows])

    def placement(self, tasks: Iterable[Task]) -> Placement:
        """As arrays; tasks on nodes that are not known any more are left out."""
        rows: dict[str, list[Task]] = {name: [] for name in self.needs.names}
        for task in tasks:
            if task.node in self._node_at:
                rows[task.role].append(task)
        return tuple(
            Tasks(
                shape,
                np.array([self._node_at[task.node] for task in mine], dtype=np.int64),
                np.array([task.gpus for task in mine], dtype=np.int64).reshape(len(mine), shape.slots),
            )
            for shape, mine in zip(self.shapes, rows.values(), strict=True)
        )

    def tasks(self, placement: Placement, names: list[str], taken: Sequence[Task]) -> tuple[Task, ...]:
        """As rows with the lowest indices that `taken` leaves; `names` of nodes."""
        found: list[Task] = []
        for role, placed in zip(self.needs.names, placement, strict=True):
            used = {task.index for task in taken if task.role == role}
            free = (index for index in range(len(used) + len(placed)) if index not in used)
            nodes: list[int] = placed.node.tolist()
            slots: list[list[int]] = placed.slots.tolist()
            found += [
                Task(role=role, index=index, node=names[node], gpus=tuple(mine))
                for index, node, mine in zip(free, nodes, slots, strict=False)
            ]
        return tuple(found)


def reached(counts: Sequence[int], least: Sequence[int]) -> bool:
    """Whether so many of each role are the minimum."""
    return any(counts) and all(count >= low for count, low in zip(counts, least, strict=True))
