"""The timelines of all pools, and that of what they share, as one thing to search and to take from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Capacity, Settings, Work
from shoal.schedule.backfill.grid import Grid
from shoal.schedule.backfill.shapes import Shape
from shoal.schedule.backfill.timeline import Timeline

__all__ = ["Board", "expected_ends"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def expected_ends(work: Work, settings: Settings, now: float) -> Floats:
    """(n,): when each is gone, on the grid and after now; what is overdue is so a while longer."""
    late = np.where(work.overdue(now), now + settings.overdue_seconds, work.end)
    return np.maximum(settings.grid(now).all_up(late), np.nextafter(now, math.inf))


class Board:
    """One timeline for each pool, one for what is shared."""

    def __init__(self, grid: Grid, pools: list[Timeline], shared: Timeline) -> None:
        self.grid = grid
        self.pools = pools
        self.shared = shared

    @classmethod
    def empty(cls, capacity: Capacity, settings: Settings, now: float) -> Board:
        """With nothing taken."""
        pools = [Timeline.empty(now, amounts) for amounts in capacity.pools]
        return cls(settings.grid(now), pools, Timeline.empty(now, capacity.shared))

    @classmethod
    def of(cls, capacity: Capacity, work: Work, settings: Settings, now: float) -> Board:
        """With everything taken that runs, until it ends, and all surplus, until it can be back."""
        board, grid = cls.empty(capacity, settings, now), settings.grid(now)
        late = np.where(work.overdue(now), now + settings.overdue_seconds, work.end)
        starts, ends = (
            np.full(len(late), now),
            np.maximum(grid.all_up(late), np.nextafter(now, math.inf)),
        )
        board = board.after(work.pool, starts, ends, work.amounts, work.shared)
        if not capacity.surplus.any():
            return board
        lent = np.arange(len(board.pools))
        starts, ends = (
            np.full(len(lent), now),
            np.full(len(lent), grid.up(now + settings.notice_seconds)),
        )
        none = np.zeros((len(lent), len(capacity.shared)), dtype=np.int64)
        return board.after(lent, starts, ends, capacity.surplus, none)

    def after(self, pool: Ints, starts: Floats, ends: Floats, amounts: Ints, shared: Ints) -> Board:
        """A new board with `amounts` (n, r) taken of each one's `pool` (n,), and `shared` (n, s), from
        `starts` to `ends` (n,)."""
        pools = list(self.pools)
        used: list[int] = np.unique(pool).tolist()
        for at in used:
            here = pool == at
            pools[at] = pools[at].after(starts[here], ends[here], amounts[here])
        using = shared.any(axis=1)
        both = (
            self.shared.after(starts[using], ends[using], shared[using]) if using.any() else self.shared
        )
        return Board(self.grid, pools, both)

    def short(self) -> bool:
        """Whether anything is promised twice."""
        return self.shared.short() or any(pool.short() for pool in self.pools)

    def earliest(self, shape: Shape, seconds: float, since: float) -> tuple[float, int]:
        """The earliest start from `since` on and the first pool that has it; infinity and -1 for
        none."""
        best, where = math.inf, -1
        for pool in shape.pools:
            start = self._earliest_in(pool, shape, seconds, since)
            if start < best:
                best, where = start, pool
                if best <= since:
                    break
        return best, where

    def sooner(
        self, shape: Shape, pool: int, seconds: float, since: float, start: float
    ) -> float | None:
        """The earliest start of a job that has its place in the pool from `start` on, which is after
        `since`; None: it may run in others, or takes of what is shared, and has to be lifted out for
        that to be told."""
        if shape.shared or shape.pools != (pool,):
            return None
        return self.pools[pool].sooner(shape.amounts, seconds, since, start, self.grid)

    def fits(self, shape: Shape, pool: int, start: float, end: float) -> bool:
        """Whether one job of this shape has room in the pool from `start` to `end`."""
        return self.pools[pool].fits(shape.amounts, start, end) and (
            not shape.shared or self.shared.fits(shape.shared, start, end)
        )

    def copies(self, shape: Shape, pool: int, start: float, end: float, most: int) -> int:
        """How many jobs of this shape have room there, where one has; at most so many."""
        if most > 1 and shape.amounts:
            most = min(most, self.pools[pool].copies(shape.amounts, start, end))
        if most > 1 and shape.shared:
            most = min(most, self.shared.copies(shape.shared, start, end))
        return most

    def take(self, shape: Shape, pool: int, start: float, end: float, copies: int = 1) -> None:
        """Take so many jobs' amounts, room or not; a negative number gives back."""
        if shape.amounts:
            self.pools[pool].take(shape.amounts, start, end, copies)
        if shape.shared:
            self.shared.take(shape.shared, start, end, copies)

    def _earliest_in(self, pool: int, shape: Shape, seconds: float, since: float) -> float:
        """Both timelines have a say; each only ever puts the start off, and the other is asked again."""
        start = self.pools[pool].earliest(shape.amounts, seconds, since, self.grid)
        while shape.shared and start < math.inf:
            agreed = self.shared.earliest(shape.shared, seconds, start, self.grid)
            if agreed == start:
                break
            start = self.pools[pool].earliest(shape.amounts, seconds, agreed, self.grid)
            if start == agreed:
                break
        return start
