"""A slow plan that is obviously right: every minute and every pool is tried, and counted, one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.schedule.backfill.world import Ask, Run


class Minutes:
    """What is free in each whole second of `span`; whatever is still there at its end stays for ever."""

    def __init__(self, pools: Sequence[tuple[int, ...]], shared: tuple[int, ...], span: int) -> None:
        self.span = span
        self._free = [[list(amounts) for _ in range(span)] for amounts in pools]
        self._shared = [list(shared) for _ in range(span)]

    def take(self, amounts, shared, pool: int, start: int, end: float) -> None:
        for minute in range(start, self.span if end == math.inf else int(end)):
            for row, amount in enumerate(amounts):
                self._free[pool][minute][row] -= amount
            for row, amount in enumerate(shared):
                self._shared[minute][row] -= amount

    def fits(self, ask: Ask, pool: int, start: int) -> bool:
        end = min(start + ask.seconds, self.span)
        return all(
            all(free >= need for free, need in zip(self._free[pool][minute], ask.amounts, strict=False))
            and all(free >= need for free, need in zip(self._shared[minute], ask.shared, strict=False))
            for minute in range(start, int(end))
        )

    def feasible(self) -> bool:
        every = [*self._shared, *(minute for pool in self._free for minute in pool)]
        return all(free >= 0 for minute in every for free in minute)

    def earliest(self, ask: Ask, since: int = 0) -> tuple[float, int]:
        pools = range(len(self._free)) if ask.pools is None else ask.pools
        for start in range(since, self.span):
            if start + ask.seconds > self.span and ask.seconds < math.inf:
                break
            for pool in pools:
                if self.fits(ask, pool, start):
                    return start, pool
        return math.inf, -1


def occupied(pools, shared, runs: Sequence[Run], span: int) -> Minutes:
    """With what runs from minute 0 until its end."""
    minutes = Minutes(pools, shared, span)
    for run in runs:
        minutes.take(run.amounts, run.shared, run.pool, 0, run.end)
    return minutes


def conservative(minutes: Minutes, asks: Sequence[Ask]) -> list[tuple[float, int]]:
    """Each job in turn at the earliest start that there is."""
    return _in_turn(minutes, asks, strictly=False)


def strict_fifo(minutes: Minutes, asks: Sequence[Ask]) -> list[tuple[float, int]]:
    """Each job no earlier than the one before it."""
    return _in_turn(minutes, asks, strictly=True)


def _in_turn(minutes: Minutes, asks: Sequence[Ask], *, strictly: bool) -> list[tuple[float, int]]:
    starts: list[tuple[float, int]] = []
    since: float = 0
    for ask in asks:
        start, pool = minutes.earliest(ask, int(since)) if since < math.inf else (math.inf, -1)
        if start < math.inf:
            minutes.take(ask.amounts, ask.shared, pool, int(start), start + ask.seconds)
        starts.append((start, pool))
        since = start if strictly else 0
    return starts
