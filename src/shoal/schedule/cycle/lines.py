"""Who is served next.

Of each queue: the higher priority, then who holds something and has lost its minimum, then who came
first. Of the queues: first who asks for no more than its queue's own; of what is borrowed the queue of
higher priority; then the job of higher priority; then the queue that is least ahead of its own (dominant
share beyond nominal over weight, from the top of the tree downwards); then who came first. What is
served counts for those after it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import le

from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.wishes import Wish, Wishes
from shoal.schedule.shares.laws import beyond_own
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.standing import standing

__all__ = ["Line", "Rest", "Standings", "in_order"]

_Standing = tuple[bool, tuple[int, ...], tuple[float, ...]]

_Key = tuple[bool, tuple[int, ...], int, tuple[float, ...], bool, float, str]


def in_order(waiting: Sequence[tuple[Asked, tuple[float, ...]]], ledger: Ledger) -> list[Asked]:
    """Those who wait, each with what it asks for by column."""
    trial = ledger.copy()
    ahead = Standings(trial)
    lines: dict[int, list[tuple[Asked, tuple[float, ...]]]] = {}
    for each in waiting:
        lines.setdefault(each[0].queue, []).append(each)
    for line in lines.values():
        line.sort(key=_own_order, reverse=True)
    heap = [(_key(ahead, queue, *line[-1]), queue) for queue, line in lines.items()]
    heapq.heapify(heap)
    found: list[Asked] = []
    looked_at = dict.fromkeys(lines, 0)
    charges = looks = looked_with = 0
    # of more and more in use, less and less is allowed: who is refused is refused for good
    wishes = {(asked.queue, amounts) for asked, amounts in waiting}
    open_wishes = {wish for wish in wishes if trial.allows(*wish)}
    while len(heap) > 1 and open_wishes:
        looks += 1
        if looks > len(open_wishes) and looked_with != charges:
            # once nobody can be served any more, the rest is in order as it stands
            looks, looked_with = 0, charges
            open_wishes = {wish for wish in open_wishes if trial.allows(*wish)}
            continue
        key, queue = heap[0]
        line = lines[queue]
        if looked_at[queue] != charges:
            # what was served since can only have put the queue further back
            looked_at[queue] = charges
            current = _key(ahead, queue, *line[-1])
            if current > key:
                heapq.heapreplace(heap, (current, queue))
                continue
        asked, amounts = line.pop()
        found.append(asked)
        if (queue, amounts) in open_wishes:
            if trial.allows(queue, amounts):
                trial.charge(queue, amounts)
                ahead.changed()
                charges += 1
            else:
                open_wishes.discard((queue, amounts))
        looked_at[queue] = charges
        if line:
            heapq.heapreplace(heap, (_key(ahead, queue, *line[-1]), queue))
        else:
            heapq.heappop(heap)
    if len(heap) == 1:
        return found + [asked for asked, _ in lines[heap[0][1]][::-1]]
    found += _merged(ahead, {queue: lines[queue][::-1] for _, queue in heap})
    return found


def _merged(
    ahead: Standings, lines: Mapping[int, Sequence[tuple[Asked, tuple[float, ...]]]]
) -> list[Asked]:
    """Each time whoever has the least key of those who are first in their lines: who is behind a larger
    key in its line counts as that."""
    parts: dict[int, tuple[bool, tuple[int, ...], int, tuple[float, ...]]] = {}
    for queue, line in lines.items():
        for asked, amounts in line:
            if asked.kind not in parts:
                beyond, first, behind = ahead.of(queue, amounts, whole=True)
                parts[asked.kind] = (beyond, first, -asked.job.priority, behind)
    # most are of few kinds, and numbers compare sooner
    numbers = {part: number for number, part in enumerate(sorted(set(parts.values())))}
    rank = {kind: numbers[part] for kind, part in parts.items()}
    keys: list[tuple[int, bool, float, str]] = []
    for line in lines.values():
        mine = [(rank[asked.kind], *asked.own_order[1:]) for asked, _ in line]
        keys += mine if all(map(le, mine, mine[1:])) else accumulate(mine, max)
    members = [asked for line in lines.values() for asked, _ in line]
    return [members[at] for at in sorted(range(len(members)), key=keys.__getitem__)]


def _own_order(each: tuple[Asked, tuple[float, ...]]) -> tuple[int, bool, float, str]:
    return each[0].own_order


class Line:
    """Those who wait, in the order in which they are served."""

    def __init__(self, members: Sequence[Asked]) -> None:
        self.members = members

    def rest(self, at: int) -> Rest:
        """From this place on."""
        return Rest(self, at)

    @cached_property
    def wishes(self) -> Wishes:
        """What they ask for to start with."""
        return Wishes([asked.wish for asked in self.members])


@dataclass(frozen=True)
class Rest:
    """One who is served, and those who wait behind it."""

    line: Line
    at: int

    @property
    def members(self) -> Sequence[Asked]:
        """It and all of them."""
        return self.line.members[self.at :]

    def refill(self, ledger: Ledger, gone: Iterable[Wish]) -> None:
        """See `Wishes.refill`: of those behind it."""
        self.line.wishes.refill(ledger, self.at, gone)


class Standings:
    """How far queues are ahead, each looked at once until something is charged."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[tuple[int, tuple[float, ...]], _Standing] = {}

    def changed(self) -> None:
        """Something was charged."""
        self._known.clear()

    def of(self, queue: int, amounts: tuple[float, ...], *, whole: bool) -> _Standing:
        """Whether the queue goes beyond its own with so much more; then the priorities on its path, the
        higher the less; and how far it is ahead from the top downwards: if it goes beyond its own, and
        `whole`, with all of it."""
        found = self._known.get((queue, amounts))
        if found is None:
            ledger = self._ledger
            path = ledger.rules.tree.paths[queue][::-1]
            beyond = beyond_own(ledger, queue, amounts) >= 0
            first = tuple([-ledger.priority[node] for node in path]) if beyond else ()
            more = amounts if beyond and whole else None
            ahead = tuple([standing(ledger, node, more) for node in path])
            found = self._known[queue, amounts] = (beyond, first, ahead)
        return found


def _key(standings: Standings, queue: int, asked: Asked, amounts: tuple[float, ...]) -> _Key:
    # a gang is ahead by all of its ask at once: who would be evicted for it is not started before it
    beyond, first, ahead = standings.of(queue, amounts, whole=True)
    less, fresh, since, name = asked.own_order
    return (beyond, first, less, ahead, fresh, since, name)
