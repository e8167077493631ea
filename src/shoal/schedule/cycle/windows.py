"""When there is a place for a job that waits: what is free for a while, beside who is laid by now."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.future import Future, taken
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.laid import Laid, nodes_of
from shoal.schedule.placing.asks import Ints, Placement
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Room

__all__ = ["Windows"]

_FEW = 64
"""So many instants are tried one by one; of more only every so many."""


class Windows:
    """Of one decision."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._made: Future | None = None
        self._made_at = (-1, -1)
        self.wide = len(desk.columns.resources) + desk.columns.nodes.slots.shape[1]

    def renew(self) -> bool:
        """What is free in time, as things stand by now; whether that is something else than before."""
        desk = self._desk
        made_at = (desk.effects, desk.later.room.mark())
        if self._made is not None and made_at == self._made_at:
            return False
        self._made, self._made_at = Future.of(desk), made_at
        return True

    @property
    def _future(self) -> Future:
        if self._made is None:
            self.renew()
        assert self._made is not None
        return self._made

    def length(self, asked: Asked) -> float:
        """For how long it may run, as far as that is known."""
        longest, turn = asked.job.longest_seconds, self._desk.rules.minimum_run_seconds
        return turn if turn and math.isinf(longest) else longest

    def instants(
        self,
        asked: Asked,
        since: Stamp,
        until: Stamp,
        others: Iterable[Laid],
        nodes: Ints | None = None,
    ) -> list[Stamp]:
        """`since`, and when something comes free after that, on these nodes or anywhere."""
        ends = {each.end for each in others if since < each.end < until}
        return [since, *sorted(ends.union(self._future.on(nodes).instants(asked, since, until)))]

    def first(
        self, instants: Sequence[Stamp], found: Callable[[Stamp], Placement | None]
    ) -> tuple[Stamp, Placement] | None:
        """The first at which there is a place. Of many instants one that is not much later: steps are
        doubled until there is a place, and then halved."""
        if len(instants) <= _FEW:
            for at in instants:
                if (there := found(at)) is not None:
                    return at, there
            return None
        low, high, step = -1, 0, 1
        best = found(instants[high])
        while best is None and high < len(instants) - 1:
            low, high = high, min(high + step, len(instants) - 1)
            step *= 2
            best = found(instants[high])
        if best is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            there = found(instants[middle])
            if there is None:
                low = middle
            else:
                high, best = middle, there
        return instants[high], best

    def placed(self, asked: Asked, at: Stamp, others: Sequence[Laid]) -> Placement | None:
        """A place from then on."""
        amounts, parts = self.split(self._window(asked, at, others, None))
        room = Room.of(self._desk.columns.nodes, amounts.copy(), parts.astype(np.int32))
        return place(room, asked.gang(asked.minimum, asked.minimum))

    def there(self, asked: Asked, laid: Laid, at: Stamp, others: Sequence[Laid]) -> bool:
        """Whether just this place is free from then on, on nodes that suit."""
        suits = self._desk.columns.nodes.suits
        if not all(suits[tasks.shape.suits, tasks.node].all() for tasks in laid.place):
            return False
        near = [each for each in others if not laid.on.isdisjoint(each.on)]
        free = self._window(asked, at, near, laid.nodes)
        return bool(((laid.takes <= free) | (laid.takes == 0)).all())

    def _window(self, asked: Asked, start: Stamp, others: Sequence[Laid], nodes: Ints | None) -> Ints:
        """What is free all the time from `start` on, for as long as the job may run."""
        end = start + self.length(asked)
        found = self._future.on(nodes).at(asked, start)
        moments = {start, *(each.start for each in others if start < each.start < end)}
        for at in sorted(moments):
            there = [each for each in others if each.start <= at < each.end]
            if not there:
                continue
            those = nodes_of(there)
            if nodes is not None:
                those = np.intersect1d(those, nodes)
            rows = those if nodes is None else np.searchsorted(nodes, those)
            free = self._future.on(those).at(asked, at)
            for each in there:
                free -= taken(each.place, those, self.wide)
            found[rows] = np.minimum(found[rows], free)
        return found

    def most(self, others: Sequence[Laid], nodes: Ints, now: bool) -> Ints:
        """What these need on these nodes: at most at any moment; and where `now` says so, of that what
        does not come free by then."""
        used = np.zeros((len(others), len(nodes), self.wide), dtype=np.int64)
        for use, each in zip(used, others, strict=True):
            use[np.searchsorted(nodes, each.nodes)] = each.takes
        start = np.array([each.start for each in others])
        end = np.array([each.end for each in others])
        together = (start <= start[:, None]) & (start[:, None] < end)
        needed = np.tensordot(together.astype(np.int64), used, 1)
        if now:
            needed -= self._future.on(nodes).back([(each.asked, each.start) for each in others])
        found: Ints = needed.max(axis=0, initial=0)
        return found

    def split(self, free: Ints) -> tuple[Ints, Ints]:
        """Resources, and GPUs."""
        resources = len(self._desk.columns.resources)
        return free[:, :resources], free[:, resources:]
