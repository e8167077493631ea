"""A job as placing knows it: its gang, its tasks as arrays, and back again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.rows import Job, Role, Task
from shoal.schedule.placing.asks import Gang, Group, Placement, Reach, Shape, Tasks

__all__ = ["Asked"]


class Asked:
    """What one job asks for. Counts are one number for each of its roles."""

    def __init__(self, job: Job, columns: Columns) -> None:
        self.job = job
        self._columns = columns
        self.shapes = tuple(_shape(role, columns) for role in job.roles)
        self.vectors = tuple(_vector(role, columns) for role in job.roles)
        """Of one task of each role, by column of queues."""
        self.minimum = _least(job)
        self.maximum = tuple(role.maximum for role in job.roles)
        going = self.counts(task for task in job.tasks if task.stopping)
        self.room = tuple(most - count for most, count in zip(self.maximum, going, strict=True))
        """How many of each role there may be until those that were told to go are gone."""
        self.reach = Reach(columns.level(job.required), columns.level(job.preferred))
        bound = tuple(role.required for role in job.roles)
        self.need = (self.shapes, self.minimum, self.reach, job.spread, bound)
        """Whoever has the same fits where this fits."""

    def gang(self, least: Sequence[int], most: Sequence[int]) -> Gang:
        """That many tasks of each role."""
        columns = self._columns
        groups = tuple(
            Group(shape, low, high, Reach(columns.level(role.required), columns.level(role.preferred)))
            for shape, low, high, role in zip(self.shapes, least, most, self.job.roles, strict=True)
        )
        return Gang(groups, reach=self.reach, spread=columns.level(self.job.spread))

    def ask(self, counts: Sequence[int], *, new: bool) -> tuple[float, ...]:
        """By column of queues; `new`: the job itself counts."""
        total = [0.0] * len(self._columns.names)
        for count, vector in zip(counts, self.vectors, strict=True):
            for at, amount in enumerate(vector):
                total[at] += count * amount
        total[-1] = float(new and self.job.counts)
        return tuple(total)

    def counts(self, tasks: Iterable[Task]) -> tuple[int, ...]:
        """How many of each role."""
        found = dict.fromkeys((role.name for role in self.job.roles), 0)
        for task in tasks:
            found[task.role] += 1
        return tuple(found.values())

    def surplus(self, tasks: Iterable[Task]) -> tuple[int, ...]:
        """Of these tasks of each role, how many are beyond the minimum and may be taken back."""
        if not self.job.preemptible:
            return (0,) * len(self.minimum)
        rows = zip(self.counts(tasks), self.minimum, strict=True)
        return tuple(max(0, count - low) for count, low in rows)

    def placement(self, tasks: Iterable[Task]) -> Placement:
        """As arrays; tasks on nodes that are not known any more are left out."""
        rows: dict[str, list[Task]] = {role.name: [] for role in self.job.roles}
        for task in tasks:
            if task.node in self._columns.node_at:
                rows[task.role].append(task)
        return tuple(
            Tasks(
                shape,
                np.array([self._columns.node_at[task.node] for task in mine], dtype=np.int64),
                np.array([task.gpus for task in mine], dtype=np.int64).reshape(len(mine), shape.slots),
            )
            for shape, mine in zip(self.shapes, rows.values(), strict=True)
        )

    def tasks(self, placement: Placement, names: list[str], taken: Sequence[Task]) -> tuple[Task, ...]:
        """As rows with the lowest indices that `taken` leaves; `names` of nodes."""
        found: list[Task] = []
        for role, placed in zip(self.job.roles, placement, strict=True):
            used = {task.index for task in taken if task.role == role.name}
            free = (index for index in range(len(used) + len(placed)) if index not in used)
            nodes: list[int] = placed.node.tolist()
            slots: list[list[int]] = placed.slots.tolist()
            found += [
                Task(role=role.name, index=index, node=names[node], gpus=tuple(mine))
                for index, node, mine in zip(free, nodes, slots, strict=False)
            ]
        return tuple(found)


def _shape(role: Role, columns: Columns) -> Shape:
    ask = tuple(role.amounts.get(name, 0) for name in columns.resources)
    return Shape(ask, gpus=role.gpus, share=role.share, suits=columns.suits_of(role))


def _vector(role: Role, columns: Columns) -> tuple[float, ...]:
    amounts = [float(role.amounts.get(name, 0)) for name in columns.resources]
    return (*amounts, role.gpus + role.share / 1000, 0.0)


def _least(job: Job) -> tuple[int, ...]:
    """Each role's minimum, and of the roles in their order so many more as the job's minimum says."""
    counts = [role.minimum for role in job.roles]
    for at, role in enumerate(job.roles):
        counts[at] += max(0, min(role.maximum - role.minimum, job.minimum - sum(counts)))
    return tuple(counts)
