"""What a job asks for, apart from who it is: shared by all jobs that state the same.

Most jobs of a cluster are of few kinds. What follows from the kind alone (shapes, amounts, gangs) is
found out once for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.rows import Job, Role
from shoal.schedule.placing.asks import Gang, Group, Reach, Shape

__all__ = ["Kinds", "Needs"]

_THOUSANDTHS = 1000
_MOST_ROLES = 16384
"""So many are remembered by identity, and kept alive for that."""


class Needs:
    """Of one kind. Counts are one number for each of its roles."""

    def __init__(
        self,
        job: Job,
        minimum: tuple[int, ...],
        columns: Columns,
        numbers: dict[tuple[object, ...], int],
    ) -> None:
        self._columns = columns
        self.roles = job.roles
        self.names = tuple(role.name for role in job.roles)
        self.shapes = tuple(_shape(role, columns) for role in job.roles)
        self.vectors = tuple(_vector(role, columns) for role in job.roles)
        """Of one task of each role, by column of queues."""
        self.whole = tuple(_whole(vector) for vector in self.vectors)
        """The same in whole numbers: GPUs in thousandths."""
        self.none = (0,) * len(job.roles)
        """No task of any role."""
        self.minimum = minimum
        self.open = job.minimum > sum(role.minimum for role in job.roles)
        """Whether the minimum may be of other roles too."""
        self.maximum = tuple(role.maximum for role in job.roles)
        self.elastic = self.maximum != self.minimum
        """Whether there may be more of some role than its minimum."""
        self.reach = Reach(columns.level(job.required), columns.level(job.preferred))
        self.spread = job.spread
        bound = tuple(role.required for role in job.roles)
        same = (self.shapes, self.minimum, self.reach, job.spread, bound, self.names)
        self.number = numbers.setdefault(same, len(numbers))
        """Whoever has the same fits where this fits."""
        self.single = (
            self.minimum == (1,)
            and not self.open
            and bound == ("",)
            and (job.required, job.preferred, job.spread, job.roles[0].preferred) == ("",) * 4
            and not self.shapes[0].share
            and bool(self.shapes[0].gpus or any(self.shapes[0].ask))
        )
        """Whether it starts with one task, wherever there is room, on whole GPUs or none."""
        self._amounts: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.least = self.amounts(self.minimum)
        """Of the minimum."""
        self._gangs: dict[tuple[tuple[int, ...], tuple[int, ...]], Gang] = {}
        self._asks: dict[tuple[tuple[int, ...], bool], tuple[float, ...]] = {}

    def gang(self, least: Sequence[int], most: Sequence[int]) -> Gang:
        """That many tasks of each role."""
        key = (tuple(least), tuple(most))
        found = self._gangs.get(key)
        if found is None:
            columns = self._columns
            groups = tuple(
                Group(
                    shape, low, high, Reach(columns.level(role.required), columns.level(role.preferred))
                )
                for shape, low, high, role in zip(self.shapes, *key, self.roles, strict=True)
            )
            found = Gang(groups, reach=self.reach, spread=columns.level(self.spread))
            self._gangs[key] = found
        return found

    def ask(self, counts: Sequence[int], *, new: bool) -> tuple[float, ...]:
        """By column of queues; `new`: the job itself counts."""
        key = (tuple(counts), new)
        found = self._asks.get(key)
        if found is None:
            total = [0.0] * len(self._columns.names)
            for count, vector in zip(counts, self.vectors, strict=True):
                for at, amount in enumerate(vector):
                    total[at] += count * amount
            total[-1] = float(new)
            found = self._asks[key] = tuple(total)
        return found

    def amounts(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """By column of queues without that of jobs; GPUs in thousandths."""
        found = self._amounts.get(counts)
        if found is None:
            rows = [
                [count * amount for amount in row] for count, row in zip(counts, self.whole, strict=True)
            ]
            found = self._amounts[counts] = tuple(map(sum, zip(*rows, strict=True)))
        return found


class Kinds:
    """All kinds that there are in a cluster with these columns."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._of: dict[tuple[object, ...], Needs] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._alike: dict[tuple[object, ...], int] = {}
        self._roles: dict[tuple[object, ...], int] = {}
        self._known: dict[int, tuple[Role, int]] = {}
        """Of roles that were looked at before, by identity, what they state."""

    def number(self, alike: tuple[object, ...]) -> int:
        """The same for all who are alike."""
        return self._alike.setdefault(alike, len(self._alike))

    def of(self, job: Job, counts: Sequence[int] | None = None) -> Needs:
        """The kind of the job, if its minimum is made up of so many of each role first; without
        `counts`, of those that there are, or that are kept for it. Raises ValueError for a level that
        there is not."""
        minimum = _least(job, counts) if job.minimum else None
        key = (
            *map(self._stated, job.roles), job.minimum, job.required, job.preferred, job.spread, minimum,
        )  # fmt: skip
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = Needs(job, _least(job, counts), self._columns, self._numbers)
        return found

    def _stated(self, role: Role) -> int:
        """The same for all roles that state the same."""
        known = self._known.get(id(role))
        if known is None:
            if len(self._known) >= _MOST_ROLES:
                self._known.clear()
            number = self._roles.setdefault(_stated(role), len(self._roles))
            known = self._known[id(role)] = (role, number)
        return known[1]


def _stated(role: Role) -> tuple[object, ...]:
    return (
        role.name, role.minimum, role.maximum, tuple(role.amounts.items()), role.gpus, role.share,
        tuple(role.selector.items()), role.tolerations, role.avoid, role.required, role.preferred,
    )  # fmt: skip


def _shape(role: Role, columns: Columns) -> Shape:
    ask = tuple(role.amounts.get(name, 0) for name in columns.resources)
    return Shape(ask, gpus=role.gpus, share=role.share, suits=columns.suits_of(role))


def _vector(role: Role, columns: Columns) -> tuple[float, ...]:
    amounts = [float(role.amounts.get(name, 0)) for name in columns.resources]
    return (*amounts, role.gpus + role.share / _THOUSANDTHS, 0.0)


def _whole(vector: Sequence[float]) -> tuple[int, ...]:
    return (*map(round, vector[:-2]), round(vector[-2] * _THOUSANDTHS))


def _least(job: Job, counts: Sequence[int] | None) -> tuple[int, ...]:
    """Each role's minimum, and so many more as the job's minimum says: as far as there are so many of a
    role, then of the roles in their order."""
    least = [role.minimum for role in job.roles]
    if job.minimum <= sum(least):
        return tuple(least)
    if counts is None:
        here = [task.role for task in (*job.present, *job.reserved)]
        counts = [here.count(role.name) for role in job.roles]
    for bounds in (counts, [role.maximum for role in job.roles]):
        for at, (role, bound) in enumerate(zip(job.roles, bounds, strict=True)):
            more = min(bound, role.maximum) - least[at]
            least[at] += max(0, min(more, job.minimum - sum(least)))
    return tuple(least)
