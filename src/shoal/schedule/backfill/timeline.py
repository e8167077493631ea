"""What is free over time: sorted instants, the amounts free from each to the next, and the earliest fit.

The count profile of conservative backfill (Mu'alem and Feitelson 2001). Between two instants nothing
changes, after the last one nothing changes ever again. Amounts are counts: that they lie on nodes which
suit together is for placing to see.

One search costs a comparison over the instants for each resource asked for, and then hops from one free
stretch to the next; a taking costs a subtraction over the stretch, and an insertion where the end is a
new instant.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.grid import Grid

__all__ = ["Needs", "Timeline"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Needs = Sequence[tuple[int, int]]
"""Resources by index, each with the amount asked for, above 0."""

_HOPS = 20
"""So many free stretches are tried one by one before the rest is searched at once."""


class Timeline:
    """Of one pool. Not for sharing between threads; nothing given to it is kept or changed."""

    def __init__(self, times: Floats, free: Ints) -> None:
        """`times` (k,) ascending, the first of them now; `free` (r, k), below 0 where too much is
        promised already."""
        self._times: list[float] = times.tolist()
        self._instants = np.array(times, dtype=np.float64)
        """The same, with room behind them."""
        self._free = np.array(free, dtype=np.int64, order="C")
        self._rows: list[Ints] = list(self._free)

    @classmethod
    def empty(cls, now: float, capacity: Ints) -> Timeline:
        """All of `capacity` (r,) free for ever."""
        return cls(np.array([now]), capacity[:, np.newaxis])

    @property
    def times(self) -> Floats:
        """(k,)."""
        return self._instants[: len(self._times)].copy()

    @property
    def free(self) -> Ints:
        """(r, k), a copy."""
        return self._free[:, : len(self._times)].copy()

    def after(self, starts: Floats, ends: Floats, amounts: Ints) -> Timeline:
        """A new timeline with `amounts` (n, r) taken from `starts` to `ends`, both (n,), starts not
        before now and ends possibly infinite. Negative amounts are given back."""
        finite = np.isfinite(ends)
        instants = np.concatenate((starts, ends[finite]))
        change = np.concatenate((-amounts, amounts[finite]))
        order = np.argsort(instants, kind="stable")
        known = self.times
        times = np.unique(np.concatenate((known, instants)))
        total = np.zeros((len(instants) + 1, change.shape[1]), dtype=np.int64)
        np.cumsum(change[order], axis=0, out=total[1:])
        past = np.searchsorted(instants[order], times, side="right")
        before = np.searchsorted(known, times, side="right") - 1
        return Timeline(times, self._free[:, before] + total[past].T)

    def now(self) -> Ints:
        """(r,): free now."""
        return self._free[:, 0]

    def before(self, instant: float) -> Ints:
        """(r,): free at the last moment before, not before now; at infinity: for ever."""
        return self._free[:, max(0, bisect_left(self._times, instant) - 1)]

    def short(self) -> bool:
        """Whether anything is below 0 anywhere."""
        return bool((self._free[:, : len(self._times)] < 0).any())

    def earliest(self, needs: Needs, seconds: float, since: float, grid: Grid) -> float:
        """The first instant from `since` on at which `needs` are free for so long, rounded up to the
        grid; infinity where there is none."""
        times, count = self._times, len(self._times)
        first = bisect_right(times, since) - 1
        if not needs:
            return since
        if seconds == math.inf and any(self._rows[row][count - 1] < need for row, need in needs):
            return math.inf
        (row, need), *others = needs
        blocked = self._rows[row][first:count] < need
        for row, need in others:
            blocked |= self._rows[row][first:count] < need
        where = blocked.tobytes()
        at = where.find(0)
        for _ in range(_HOPS):
            if at < 0:
                return math.inf
            start = since if at == 0 else times[first + at]
            until = where.find(1, at)
            if until < 0 or times[first + until] >= grid.up(start + seconds):
                return start
            at = where.find(0, until)
        if at < 0:
            return math.inf
        return self._earliest_of_many(blocked, first, at, seconds, grid)

    def sooner(self, needs: Needs, seconds: float, since: float, start: float, grid: Grid) -> float:
        """As `earliest`, for `needs` that are in here from `start`, which is after `since`, for no less
        than `seconds`: they may move forward onto their own place. `start` where there is nothing
        sooner."""
        times = self._times
        first, last = bisect_right(times, since) - 1, bisect_left(times, start)
        if not needs:
            return since
        (row, need), *others = needs
        blocked = self._rows[row][first:last] < need
        for row, need in others:
            blocked |= self._rows[row][first:last] < need
        where = blocked.tobytes()
        at = where.find(0)
        for _ in range(_HOPS):
            if at < 0:
                return start
            begin = since if at == 0 else times[first + at]
            until = where.find(1, at)
            if until < 0 or times[first + until] >= grid.up(begin + seconds):
                return begin
            at = where.find(0, until)
        if at < 0:
            return start
        return min(start, self._earliest_of_many(blocked, first, at, seconds, grid))

    def fits(self, needs: Needs, start: float, end: float) -> bool:
        """Whether `needs` are free all the time from `start`, not before now, to `end`."""
        times = self._times
        low, high = bisect_right(times, start) - 1, bisect_left(times, end)
        return all(self._rows[row][low:high].min() >= need for row, need in needs)

    def copies(self, needs: Needs, start: float, end: float) -> int:
        """How many times over `needs`, at least one of them, are free from `start` to `end`."""
        times = self._times
        low, high = bisect_right(times, start) - 1, bisect_left(times, end)
        return min(int(self._rows[row][low:high].min()) // need for row, need in needs)

    def take(self, needs: Needs, start: float, end: float, copies: int = 1) -> None:
        """So many times `needs` from `start`, not before now, to `end`, whether they are free or not;
        a negative number gives back."""
        low = self._cut(start)
        high = len(self._times) if end == math.inf else self._cut(end)
        for row, need in needs:
            self._rows[row][low:high] -= need * copies

    def _cut(self, instant: float) -> int:
        """The index of this instant, which becomes one of the timeline's."""
        times = self._times
        at = bisect_left(times, instant)
        count = len(times)
        if at < count and times[at] == instant:
            return at
        if count == self._free.shape[1]:
            self._free = np.concatenate((self._free, np.empty_like(self._free)), axis=1)
            self._rows = list(self._free)
            self._instants = np.concatenate((self._instants, np.empty_like(self._instants)))
        for row in self._rows:
            row[at + 1 : count + 1] = row[at:count]
            row[at] = row[at - 1]
        self._instants[at + 1 : count + 1] = self._instants[at:count]
        self._instants[at] = instant
        times.insert(at, instant)
        return at

    def _earliest_of_many(
        self, blocked: NDArray[np.bool_], first: int, at: int, seconds: float, grid: Grid
    ) -> float:
        """`earliest` from the free stretch at `at` on, which begins at an instant of the timeline."""
        times = self._instants[first : len(self._times)]
        edges = np.flatnonzero(np.diff(blocked[at:].view(np.int8))) + at + 1
        begins = times[np.concatenate(([at], edges[1::2]))]
        ends = np.append(times[edges[0::2]], math.inf)[: len(begins)]
        fitting = np.flatnonzero(ends >= grid.all_up(begins + seconds))
        return float(begins[fitting[0]]) if len(fitting) else math.inf
