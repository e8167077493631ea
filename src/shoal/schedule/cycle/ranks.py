"""Whom the dates of others do not keep waiting.

A date is kept from everybody who has no better right than who was told it. A better right is a higher
class: a higher priority; and of equal priority to ask for no more than one's queue's own, with all that
wait before it in its queue, where the other borrows. And it is a better right to come from a queue that
is so far behind the other's that it could take as much from it, by the laws of reclaiming, if the other
were there already: else one queue's backlog, with dates for all of it, would keep out a queue that has
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.units import claim_of
from shoal.schedule.shares.laws import Holding, Laws, beyond_own, reclaim_refusal
from shoal.schedule.shares.ledger import Ledger

__all__ = ["Ranks", "classes"]


def classes(order: Sequence[Asked], ledger: Ledger) -> dict[str, int]:
    """By job, of those that wait in this order: the higher the better. Who borrows and was told a date
    is not overtaken by its own queue."""
    own: set[str] = set()
    if len({asked.queue for asked in order}) > 1:
        before: dict[int, tuple[float, ...]] = {}
        borrowing: set[int] = set()
        for asked in order:
            if asked.queue in borrowing:
                continue
            more = asked.lacks
            if (others := before.get(asked.queue)) is not None:
                more = tuple([mine + theirs for mine, theirs in zip(more, others, strict=True)])
            if beyond_own(ledger, asked.queue, more) >= 0:
                borrowing.add(asked.queue)
            else:
                own.add(asked.job.name)
                before[asked.queue] = more
    told: set[tuple[int, int]] = set()
    found: dict[str, int] = {}
    for asked in reversed(order):
        job = asked.job
        first = job.name in own and (asked.queue, job.priority) not in told
        found[job.name] = 2 * job.priority + first
        if job.promised is not None and not first:
            told.add((asked.queue, job.priority))
    return found


class Ranks:
    """Of those who wait in one decision."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._laws = Laws(beyond_nominal=desk.rules.beyond_nominal)
        self._known: dict[tuple[int, int], bool] = {}
        self._known_at = -1

    def asks_for_its_own(self, asked: Asked) -> bool:
        """Whether it is of the higher class of its priority."""
        return self._desk.class_of(asked) > 2 * asked.job.priority

    def above(self, asked: Asked, other: Asked) -> bool:
        """Whether it has a better right than this other one."""
        desk = self._desk
        if asked.queue == other.queue or asked.job.priority != other.job.priority:
            return asked.job.priority > other.job.priority
        if desk.class_of(asked) != desk.class_of(other):
            return desk.class_of(asked) > desk.class_of(other)
        if self._known_at != desk.later.version:
            self._known_at = desk.later.version
            self._known.clear()
        key = asked.kind, other.kind
        found = self._known.get(key)
        if found is None:
            claim = claim_of(asked, asked.queue, asked.lacks, asked.number)
            as_if = Holding(other.queue, other.lacks, claim.priority, job=other.number)
            refusal = reclaim_refusal(desk.later.ledger, claim, as_if, self._laws)
            found = self._known[key] = refusal is None
        return found
