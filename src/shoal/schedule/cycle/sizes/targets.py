"""The target of each job that says how fast it is: how many tasks of its elastic role it is to have.

What such jobs of one queue hold and what is free is theirs, less what others ask for who wait and could
have it. The highest priority has its sizes first, what it leaves is the next one's. Targets are bounds:
whether a queue, a user or a node lets a job have so many is asked when it is to have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from shoal.schedule.allot import Contender
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Role
from shoal.schedule.cycle.sizes.outlook import outlook, remaining, speed
from shoal.schedule.cycle.sizes.slots import Unit, smallest
from shoal.schedule.sizing.policy import Elastic

__all__ = ["targets"]

_LEAST_RESTART_SECONDS = 1.0
"""Nobody changes for less: what is known of speeds is not that exact."""
_RESTARTS = 6
"""A decision is thought to hold for so many at least."""


_Key = tuple[int, int, bool, bool]


@dataclass(frozen=True)
class _Member:
    """A job that says how fast it is. Counts are tasks of its elastic role."""

    asked: Asked
    at: int
    """Which of its roles."""
    held: int
    """There, or kept for it."""

    @property
    def role(self) -> Role:
        return self.asked.job.roles[self.at]

    @property
    def least(self) -> int:
        return max(1, self.asked.minimum[self.at])


def targets(desk: Desk, waiting: Sequence[Asked]) -> dict[str, int]:
    """By job. `waiting`: all who wait and may start, in the order in which they are served; nobody, when
    that is over and only who holds something can grow.

    Raises ValueError for curves and amounts of work that cannot be.
    """
    found: dict[str, int] = {}
    for key, members in _groups(desk, waiting):
        unit = smallest(member.asked.shapes[member.at] for member in members)
        group = _Group(desk, unit, members, waiting)
        for priority, same in groupby(members, key=lambda member: member.asked.job.priority):
            found.update(group.sized((*key, priority, bool(waiting)), list(same)))
    return found


def _groups(desk: Desk, waiting: Sequence[Asked]) -> Iterator[tuple[_Key, list[_Member]]]:
    """Of one queue and for the same nodes, by kind of task; the highest priority first, who holds
    something before who waits, and these in their order."""
    if not desk.sized:
        return
    rank = {asked.job.name: at for at, asked in enumerate(waiting)}
    kept = {asked.job.name: counts for asked, counts in desk.kept_for()}
    found: dict[_Key, list[_Member]] = {}
    for name in desk.sized:
        asked = desk.asked[name]
        at = asked.sized
        if at is None or name in desk.ending or asked.job.suspended:
            continue
        present = desk.present.get(name, ())
        if not present and name not in kept and name not in rank:
            continue
        held = asked.there if present is asked.present else asked.counts(present)
        more = kept[name][at] if name in kept else 0
        shape = asked.shapes[at]
        key = (desk.queue(asked.job), shape.suits, shape.gpus > 0, shape.share > 0)
        found.setdefault(key, []).append(_Member(asked, at, held[at] + more))
    for key in sorted(found):
        yield (
            key,
            sorted(
                found[key],
                key=lambda member: (
                    -member.asked.job.priority,
                    member.held == 0,
                    rank.get(member.asked.job.name, -1),
                    member.asked.job.created,
                    member.asked.job.name,
                ),
            ),
        )


class _Group:
    """What there is for them, in units, while class after class takes its part."""

    def __init__(
        self, desk: Desk, unit: Unit, members: Sequence[_Member], waiting: Sequence[Asked]
    ) -> None:
        self._desk = desk
        self._unit = unit
        self._per_node = max(1, unit.per_node(desk.later.room))
        self._left = sum(self._units(member, member.held) for member in members)
        self._left += self._free(members[0])
        self._left -= self._claimed(members, waiting)
        self._needed = sum(self._units(member, member.least) for member in members if member.held)
        """By those who hold something and whose turn is still to come."""

    def sized(self, key: tuple[object, ...], members: Sequence[_Member]) -> dict[str, int]:
        """Of one priority. `key`: what is the same class when somebody asks again."""
        self._needed -= sum(self._units(member, member.least) for member in members if member.held)
        capacity = self._left - self._needed
        here: list[_Member] = []
        taken = 0
        for member in members:
            least = self._units(member, member.least)
            if member.held or taken + least <= capacity:
                here.append(member)
                taken += least
        if not here or taken > capacity:
            sizes = [self._units(member, member.least) for member in here]
        else:
            sizes = self._remembered(key, here, capacity)
        self._left -= sum(sizes)
        found = {member.asked.job.name: member.least for member in members}
        for member, size in zip(here, sizes, strict=True):
            width = self._unit.width(member.asked.shapes[member.at])
            most = member.asked.room[member.at]
            found[member.asked.job.name] = max(member.least, min(size // width, most))
        return found

    def _remembered(
        self, key: tuple[object, ...], members: Sequence[_Member], capacity: int
    ) -> list[int]:
        """As it was the last time, where nothing is different that sizes follow from: what is kept of a
        row is so only as long as the row is."""
        held = tuple((member.asked, member.held) for member in members)
        asked = (capacity, self._per_node, self._unit.shape, self._desk.rules.horizon_seconds, held)
        known = self._desk.sizes.get(key)
        if known is None or known[0] != asked:
            known = self._desk.sizes[key] = (asked, self._chosen(members, capacity))
        return known[1]

    def _chosen(self, members: Sequence[_Member], capacity: int) -> list[int]:
        """Only sizes matter here: nodes are as full as they can be, and who is on which is not asked."""
        size = self._per_node
        nodes = [size] * (capacity // size) + [capacity % size] * bool(capacity % size)
        contenders = [self._contender(member) for member in members]
        # of equals who came first is to end first, whatever they hold by now
        contenders.sort(key=lambda contender: (contender.submitted, contender.name), reverse=True)
        policy = Elastic("declared", horizon=self._horizon(members, capacity), live=True)
        sizes = policy.sizes(contenders, nodes).tolist()
        given = dict(zip((each.name for each in contenders), sizes, strict=True))
        return [given[member.asked.job.name] for member in members]

    def _horizon(self, members: Sequence[_Member], capacity: int) -> float:
        """How long a decision is thought to hold: half of what is left of a job in the middle at a fair
        share, by when so much has changed that all is decided anew; and for some restarts."""
        most = self._desk.rules.horizon_seconds
        fair = capacity / len(members)
        left: list[float] = []
        for member in members:
            job, width = member.asked.job, self._unit.width(member.asked.shapes[member.at])
            tasks = max(member.least, min(member.role.maximum, int(fair / width)))
            if (work := remaining(job)) is not None:
                left.append(work / speed(job, tasks))
        if not left:
            return most
        restarts = median(_restart(member) for member in members)
        return min(most, max(median(left) / 2, _RESTARTS * restarts))

    def _contender(self, member: _Member) -> Contender:
        job, role = member.asked.job, member.role
        width = self._unit.width(member.asked.shapes[member.at])
        seen = outlook(job, role, width)
        return Contender(
            name=job.name,
            submitted=job.created,
            size=width * role.maximum,
            least=width * member.least,
            most=width * role.maximum,
            nodes=(0,) * self._units(member, member.held),
            run_seconds=_unasked,
            step_seconds=_unasked,
            steps_left=_unasked,
            restart=_restart(member),
            outlook=seen,
        )

    def _units(self, member: _Member, count: int) -> int:
        return count * self._unit.width(member.asked.shapes[member.at])

    def _free(self, member: _Member) -> int:
        """Once those are gone who go, and as far as the queue may have it."""
        desk = self._desk
        free = int(self._unit.free(desk.later.room).sum())
        one = member.asked.vectors[member.at]
        part = self._unit.width(member.asked.shapes[member.at])
        need = [amount / part for amount in one]
        return desk.later.ledger.tasks(desk.queue(member.asked.job), need, free)

    def _claimed(self, members: Sequence[_Member], waiting: Sequence[Asked]) -> int:
        """By others who wait, and could have it: what is free, or surplus of no higher priority in their
        own queue."""
        desk = self._desk
        names = {member.asked.job.name for member in members}
        queue = desk.queue(members[0].asked.job)
        free, claimed = self._free(members[0]), 0
        for asked in waiting:
            if asked.job.name in names:
                continue
            there = asked.counts(asked.present)
            lacking = [max(0, low - count) for low, count in zip(asked.minimum, there, strict=True)]
            surplus = sum(
                self._units(member, max(0, member.held - member.least))
                for member in members
                if desk.queue(asked.job) == queue and member.asked.job.priority <= asked.job.priority
            )
            units = self._unit.units(asked, lacking)
            if claimed + units <= free + surplus:
                claimed += units
        return claimed


def _restart(member: _Member) -> float:
    return max(member.asked.job.restart_seconds, _LEAST_RESTART_SECONDS)


def _unasked(size: int = 0) -> float:
    raise AssertionError("sizes are chosen by what jobs say of themselves alone")
