"""The target of each job that says how fast it is: how many tasks of its elastic role it is to have.

What such jobs of one queue hold and what is free is theirs, less what others ask for who wait and could
have it. The highest priority has its sizes first, what it leaves is the next one's. Targets are bounds:
whether a queue, a user or a node lets a job have so many is asked when it is to have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.sizes.members import Member, groups
from shoal.schedule.cycle.sizes.outlook import remaining, speed
from shoal.schedule.cycle.sizes.seen import LEAST_RESTART_SECONDS, seen
from shoal.schedule.cycle.sizes.slots import Unit, smallest
from shoal.schedule.sizing.policy import Elastic

__all__ = ["targets"]

_RESTARTS = 6
"""A decision is thought to hold for so many at least."""


def targets(desk: Desk, waiting: Sequence[Asked]) -> dict[str, int]:
    """By job. `waiting`: all who wait and may start, in the order in which they are served; nobody, when
    that is over and only who holds something can grow.

    Raises ValueError for curves and amounts of work that cannot be.
    """
    found: dict[str, int] = {}
    for key, members in groups(desk, waiting):
        unit = smallest(member.asked.shapes[member.at] for member in members)
        group = _Group(desk, unit, members, waiting)
        for priority, same in groupby(members, key=lambda member: member.asked.job.priority):
            found.update(group.sized((*key, priority, bool(waiting)), list(same)))
    return found


class _Group:
    """What there is for them, in units, while class after class takes its part."""

    def __init__(
        self, desk: Desk, unit: Unit, members: Sequence[Member], waiting: Sequence[Asked]
    ) -> None:
        self._desk = desk
        self._unit = unit
        self._per_node = max(1, unit.per_node(desk.later.room))
        self._left = sum(self._units(member, member.held) for member in members)
        self._left += self._free(members[0])
        self._left -= self._claimed(members, waiting)
        self._needed = sum(self._units(member, member.least) for member in members if member.held)
        """By those who hold something and whose turn is still to come."""

    def sized(self, key: tuple[object, ...], members: Sequence[Member]) -> dict[str, int]:
        """Of one priority. `key`: what is the same class when somebody asks again."""
        self._needed -= sum(self._units(member, member.least) for member in members if member.held)
        capacity = self._left - self._needed
        here: list[Member] = []
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
        self, key: tuple[object, ...], members: Sequence[Member], capacity: int
    ) -> list[int]:
        """As it was the last time, where nothing is different that sizes follow from: what is kept of a
        row is so only as long as the row is."""
        held = tuple((member.asked, member.held) for member in members)
        asked = (capacity, self._per_node, self._unit.shape, self._desk.rules.horizon_seconds, held)
        known = self._desk.sizes.get(key)
        if known is None or known[0] != asked:
            known = self._desk.sizes[key] = (asked, self._chosen(members, capacity))
        return known[1]

    def _chosen(self, members: Sequence[Member], capacity: int) -> list[int]:
        """Only sizes matter here: nodes are as full as they can be, and who is on which is not asked."""
        # of equals who came first is to end first, whatever they hold by now
        order = sorted(range(len(members)), key=lambda at: _came(members[at]), reverse=True)
        widths = [self._unit.width(member.asked.shapes[member.at]) for member in members]
        policy = Elastic("declared", horizon=self._horizon(members, widths, capacity), live=True)
        turned = seen(
            [members[at] for at in order], [widths[at] for at in order], self._per_node, capacity
        )
        given = dict(zip(order, policy.chosen(turned, capacity).tolist(), strict=True))
        return [given[at] for at in range(len(members))]

    def _horizon(self, members: Sequence[Member], widths: Sequence[int], capacity: int) -> float:
        """How long a decision is thought to hold: half of what is left of a job in the middle at a fair
        share, by when so much has changed that all is decided anew; and for some restarts."""
        most = self._desk.rules.horizon_seconds
        fair = capacity / len(members)
        left: list[float] = []
        for member, width in zip(members, widths, strict=True):
            job = member.asked.job
            tasks = max(member.least, min(member.role.maximum, int(fair / width)))
            if (work := remaining(job)) is not None:
                left.append(work / speed(job, tasks))
        if not left:
            return most
        restarts = median(_restart(member) for member in members)
        return min(most, max(median(left) / 2, _RESTARTS * restarts))

    def _units(self, member: Member, count: int) -> int:
        return count * self._unit.width(member.asked.shapes[member.at])

    def _free(self, member: Member) -> int:
        """Once those are gone who go, and as far as the queue may have it."""
        desk = self._desk
        free = int(self._unit.free(desk.later.room).sum())
        one = member.asked.vectors[member.at]
        part = self._unit.width(member.asked.shapes[member.at])
        need = [amount / part for amount in one]
        return desk.later.ledger.tasks(desk.queue(member.asked.job), need, free)

    def _claimed(self, members: Sequence[Member], waiting: Sequence[Asked]) -> int:
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


def _restart(member: Member) -> float:
    return max(member.asked.job.restart_seconds, LEAST_RESTART_SECONDS)


def _came(member: Member) -> tuple[float, str]:
    return member.asked.job.created, member.asked.job.name
