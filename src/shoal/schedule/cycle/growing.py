"""What is left goes to jobs that may have more, one task at a time.

First to the queue that has less than its own, then by the queue's priority, the job's, and how far the
queue is ahead; of one queue to who has least more than its minimum. What a job gets beyond its minimum
is the first to be taken back; what is its queue's own is asked back for it from who has more than that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from shoal.schedule.cycle.ahead import Ahead
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.lines import Standings
from shoal.schedule.cycle.victims import Victims
from shoal.schedule.placing.asks import Placement, Shape, Tasks
from shoal.schedule.placing.grow import grow

__all__ = ["grow_all", "take_back_own"]

_SLACK = 1e-9
_Key = tuple[bool, tuple[int, ...], int, tuple[float, ...], int, int]


def grow_all(desk: Desk, order: Sequence[Asked], ahead: Ahead) -> None:
    """Those that hold something, and were not told to give back in this plan; who was served first in
    this plan comes first among equals. Places that somebody counts on at a date are lent to those from
    whom they can be asked back."""
    growth = _Growth(desk, ahead)
    heap: list[tuple[_Key, str, int, int]] = []
    keys = _Keys(desk)
    rank: dict[str, int] = {}
    kept = {asked.job.name for asked, _ in desk.kept_for()}
    for name in desk.present:
        asked = desk.asked[name]
        if not asked.needs.elastic:
            continue
        if asked.job.suspended or desk.told_to_give(name) or name in desk.ending:
            continue
        if name in kept and name in desk.targets:
            continue  # it grows by that first, for a plan changes a job once
        counts, most = desk.counts(asked), desk.most(asked)
        if any(count < low for count, low in zip(counts, asked.minimum, strict=True)):
            continue
        for at, (count, low, high) in enumerate(zip(counts, asked.minimum, most, strict=True)):
            if count < high and growth.has_room(asked, at):
                rank = rank or {each.job.name: place for place, each in enumerate(order)}
                heap.append((keys.of(asked, at, count - low, rank.get(name, -1)), name, at, count))
    heapq.heapify(heap)
    gained: dict[str, list[Placement]] = {}
    while heap:
        key, name, role, count = heapq.heappop(heap)
        asked = desk.asked[name]
        if growth.is_hopeless(asked, role):
            continue
        # what was given since can only have put its queue further back
        current = keys.of(asked, role, count - asked.minimum[role], rank.get(name, -1))
        if current > key:
            heapq.heappush(heap, (current, name, role, count))
            continue
        placed = growth.one_more(asked, role, gained.get(name, []))
        if placed is None:
            continue
        gained.setdefault(name, []).append(placed)
        if count + 1 < desk.most(asked)[role]:
            more = count + 1 - asked.minimum[role]
            again = keys.of(asked, role, more, rank.get(name, -1))
            heapq.heappush(heap, (again, name, role, count + 1))
    for name, pieces in gained.items():
        asked = desk.asked[name]
        joined = tuple(
            Tasks.joined(shape, [piece[at] for piece in pieces]) for at, shape in enumerate(asked.shapes)
        )
        desk.grown(asked, joined)


def take_back_own(desk: Desk, victims: Victims, ahead: Ahead) -> bool:
    """Jobs that may have more, in queues that have less than their own, get the surplus of others;
    those too that others have just been told to give way for, so that they need not ask again once they
    are there.

    Whether it has to be looked at again: a plan changes a job once.
    """
    later = False
    for asked in desk.takes():
        _take_with_its_place(desk, victims, asked, ahead)
    for name in sorted(desk.present):
        asked = desk.asked[name]
        job = asked.job
        if not asked.needs.elastic:
            continue
        if name in desk.ending or desk.told_to_give(name) or job.suspended:
            continue
        if _bound(asked):
            continue  # whose place is bound to where it is grows into what is free there
        counts = desk.counts(asked)
        for role, (count, low, high) in enumerate(
            zip(counts, asked.minimum, desk.most(asked), strict=True)
        ):
            more = min(high - count, _own_left(desk, asked, role)) if low <= count < high else 0
            if more > 0 and name in desk.settled:
                later = later or not desk.is_kept_a_place(name)
            elif more > 0 and _asked_back(desk, victims, asked, role, more, ahead):
                break
    return later


def _take_with_its_place(desk: Desk, victims: Victims, asked: Asked, ahead: Ahead) -> None:
    if _bound(asked) or not asked.needs.elastic:
        return
    kept = desk.kept_tasks(asked.job.name)
    rows = zip(asked.counts(kept), asked.minimum, desk.most(asked), strict=True)
    for role, (count, low, high) in enumerate(rows):
        more = min(high - count, _own_left(desk, asked, role)) if low <= count < high else 0
        if more > 0 and _asked_back(desk, victims, asked, role, more, ahead):
            return


def _bound(asked: Asked) -> bool:
    """Whether its place depends on where it is."""
    return _near_its_own(asked) or bool(asked.job.spread)


def _own_left(desk: Desk, asked: Asked, role: int) -> int:
    """How many tasks of the role there are in what its queue has left of its own."""
    queue, ledger = desk.queue(asked.job), desk.later.ledger
    rows = zip(
        asked.vectors[role], ledger.use[queue], ledger.nominal[queue], ledger.capacity, strict=True
    )
    left = [
        int((own - used) / ask + _SLACK)
        for ask, used, own, all_there_is in rows
        if ask > 0 and math.isfinite(all_there_is)
    ]
    return min(left, default=0)


def _asked_back(desk: Desk, victims: Victims, asked: Asked, role: int, most: int, ahead: Ahead) -> bool:
    for more in dict.fromkeys((most, 1)):
        counts = tuple(more * (at == role) for at in range(len(asked.shapes)))
        amounts = asked.ask(counts, new=False)
        if desk.later.users.refusal(desk.queue(asked.job), asked.job.user, amounts) is not None:
            continue
        victims.changed(desk.changed())
        if victims.has_nothing_for(asked, amounts):
            continue
        with ahead.without_loans(desk.later.room, asked):
            found = victims.surplus_for(asked, amounts, asked.gang(counts, counts))
        if found is not None:
            take = desk.take_more if desk.is_kept_a_place(asked.job.name) else desk.take_place
            take(asked, *found)
            return True
    return False


class _Keys:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._standings = Standings(desk.later.ledger)
        self._at = -1

    def of(self, asked: Asked, role: int, more: int, rank: int) -> _Key:
        if self._at != self._desk.later.version:
            self._at = self._desk.later.version
            self._standings.changed()
        beyond, first, ahead = self._standings.of(asked.queue, asked.vectors[role], whole=False)
        return (beyond, first, -asked.job.priority, ahead, more, rank)


class _Growth:
    """Of one task at a time. What is free becomes less, and what is in use more: what is not possible
    for one is not for who is like it and comes later."""

    def __init__(self, desk: Desk, ahead: Ahead) -> None:
        self._desk, self._ahead = desk, ahead
        self._room: dict[Shape, bool] = {}
        """Of each shape, whether one could stand anywhere."""
        self._hopeless: set[tuple[object, ...]] = set()
        self._crowded: dict[Shape, list[frozenset[str]]] = {}
        """Beside whom there is nothing left for one of the shape."""

    def has_room(self, asked: Asked, role: int) -> bool:
        """For one more of the role somewhere, before anybody has been given any."""
        shape = asked.shapes[role]
        if shape not in self._room:
            self._room[shape] = self._desk.current.room.fits(shape).total > 0
        return self._room[shape]

    def is_hopeless(self, asked: Asked, role: int) -> bool:
        """Whether one that is like it found nothing."""
        return asked.reach.required is None and _alike(asked, role) in self._hopeless

    def one_more(self, asked: Asked, role: int, gained: Sequence[Placement]) -> Placement | None:
        """Taken and charged."""
        desk, one = self._desk, _one(asked, role)
        amounts = asked.ask(one, new=False)
        allowed = all(books.refusal(asked, amounts) is None for books in (desk.current, desk.later))
        found = self._found(asked, role, gained) if allowed else None
        if found is None:
            self._hopeless.add(_alike(asked, role))
            return None
        desk.later.occupy(found)
        for books in (desk.current, desk.later):
            books.charge(asked, amounts)
        return found

    def _found(self, asked: Asked, role: int, gained: Sequence[Placement]) -> Placement | None:
        others = self._ahead.kept_clear_of(asked)
        crowded = self._crowded.setdefault(asked.shapes[role], [])
        if not _near_its_own(asked) and any(fewer <= others for fewer in crowded):
            return None
        desk, one = self._desk, _one(asked, role)
        there = asked.placement(desk.present[asked.job.name])
        if gained:
            there = tuple(
                Tasks.joined(shape, [there[at], *(piece[at] for piece in gained)])
                for at, shape in enumerate(asked.shapes)
            )
        gang, room = asked.gang(asked.minimum, asked.maximum), desk.current.room
        found = self._ahead.unlent(room, asked, lambda: grow(room, gang, there, one, one))
        if found is None and not _near_its_own(asked):
            crowded.append(others)
        return found


def _one(asked: Asked, role: int) -> tuple[int, ...]:
    return tuple(int(at == role) for at in range(len(asked.shapes)))


def _alike(asked: Asked, role: int) -> tuple[object, ...]:
    return (asked.job.queue, asked.job.user, asked.shapes[role], asked.reach, asked.job.spread)


def _near_its_own(asked: Asked) -> bool:
    """Whether it may not be everywhere, for where it is already."""
    return asked.reach.required is not None or any(role.required for role in asked.job.roles)
