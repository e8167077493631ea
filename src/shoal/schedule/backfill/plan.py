"""The plan in time of all that wait: conservative backfill that keeps what it has promised.

Jobs are served in order, class by class. Each gets the earliest start at which what it asks for is free
for its whole wall time, beside all that was planned before it: a later job starts earlier only where it
moves nobody. Without promises every job starts no later than if all started strictly in order, because
at the moment when it would, whoever is before it holds no more than it would there.

Serving everybody anew at each change would move dates both ways: a job before me that can start earlier
than planned may then stand where I was to stand. So the dates promised before are laid first, class by
class, and then each promised job in turn is lifted out and looks for an earlier place; its own is free,
so it moves forward or not at all (compression, Mu'alem and Feitelson 2001). Only a higher class, planned
before those dates are laid, or a loss of capacity can leave no room for one.

A job that waits for what nobody knows the end of has no date. Once it has starved, what it asks for is
kept aside as it comes free, and nobody behind it takes of that but who can give it back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Capacity, Settings, Waiting, Work
from shoal.schedule.backfill.board import Board
from shoal.schedule.backfill.keep import Dates, lay
from shoal.schedule.backfill.shapes import Bounds, Shape, shapes

__all__ = ["Plan", "Profile", "Verdict", "plan"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Verdict(IntEnum):
    """What the plan says of a waiting job."""

    START = 0
    """Now, and nobody promised a date starts later for it."""
    RESERVED = 1
    """At the date, which is promised."""
    BEYOND_HORIZON = 2
    """It has a place in the plan, too far off to be promised."""
    ASIDE = 3
    """No date can be told; capacity is kept for it as it comes free."""
    UNDATED = 4
    """No date can be told: it waits for work whose end nobody knows."""
    TOO_LARGE = 5
    """No pool that it may use has so much even when empty."""
    BEYOND_DEPTH = 6
    """Not looked at: the plan is full."""


@dataclass(frozen=True)
class Profile:
    """What is free over time."""

    times: Floats
    """(k,), ascending, from now."""
    free: Ints
    """(r, k), from each of `times` to the next, the last for ever; below 0 where more is kept aside than
    is there."""


@dataclass(frozen=True)
class Plan:
    """Of `m` waiting jobs, in their order."""

    now: float
    verdict: NDArray[np.int8]
    """(m,): of `Verdict`."""
    start: Floats
    """(m,): infinity where the verdict has no date."""
    end: Floats
    """(m,): when its capacity is back; infinity where it is unknown or there is no date."""
    pool: Ints
    """(m,): where it starts or what is kept for it is; -1 where neither."""
    laid: NDArray[np.bool_]
    """(m,): its promise was laid before its class was planned, at its date or later."""
    kept: NDArray[np.bool_]
    """(m,): it was laid at its date."""
    pools: tuple[Profile, ...]
    """(c,): what is left with all of this in place."""
    shared: Profile
    aside: Ints
    """(c, r): of what `pools` lack, what is kept for jobs without a date."""
    evaluations: int
    """Searches made; equal jobs share one."""

    def having(self, *verdicts: Verdict) -> Ints:
        """The jobs with one of these verdicts, in order."""
        return np.flatnonzero(np.isin(self.verdict, verdicts))


def plan(capacity: Capacity, work: Work, waiting: Waiting, settings: Settings, now: float) -> Plan:
    """Raises ValueError where the parts have different numbers of pools or resources."""
    (pools, resources), shared = capacity.pools.shape, len(capacity.shared)
    if not work.amounts.shape[1] == waiting.amounts.shape[1] == resources:
        raise ValueError(f"there are {resources} resources in a pool: work and jobs have other numbers")
    if not work.shared.shape[1] == waiting.shared.shape[1] == shared:
        raise ValueError(f"there are {shared} shared amounts: work and jobs have other numbers")
    if waiting.pools.shape[1] != pools or ((work.pool < 0) | (work.pool >= pools)).any():
        raise ValueError(f"there are {pools} pools: work or jobs name others")
    planner = _Planner(capacity, work, waiting, settings, now)
    bounds = np.flatnonzero(np.diff(waiting.rank)) + 1
    for low, high in pairwise([0, *bounds.tolist(), len(waiting)]):
        planner.serve(low, high)
    return planner.result()


class _Planner:
    """The plan as far as it has been made."""

    def __init__(
        self, capacity: Capacity, work: Work, waiting: Waiting, settings: Settings, now: float
    ) -> None:
        self._now, self._settings, self._waiting = now, settings, waiting
        self._capacity = capacity
        self._board = Board.of(capacity, work, settings, now)
        self._shapes, of = shapes(waiting, capacity)
        self._of: list[int] = of.tolist()
        self._occupied: list[float] = (waiting.seconds + settings.slack_seconds).tolist()
        self._starved: list[bool] = waiting.starved.tolist()
        self._fixed: list[bool] = waiting.fixed.tolist()
        self._bounds = Bounds(now, len(self._shapes))
        m = len(waiting)
        self._dates = Dates(np.full(m, math.inf), np.full(m, math.inf), np.full(m, -1))
        self._verdict = np.full(m, Verdict.BEYOND_DEPTH, dtype=np.int8)
        self._laid = np.zeros(m, dtype=np.bool_)
        self._kept = np.zeros(m, dtype=np.bool_)
        self._aside = np.zeros_like(capacity.pools)
        self._aside_shared = np.zeros_like(capacity.shared)
        self._alike = _last_alike(of, waiting)
        self._planned = 0
        self._evaluations = 0

    def serve(self, low: int, high: int) -> None:
        """The jobs from `low` to `high`, which are one class: what they were promised first."""
        self._board, self._laid[low:high], self._kept[low:high] = lay(
            self._board,
            self._waiting,
            self._shapes,
            self._of,
            self._settings,
            range(low, high),
            self._dates,
        )
        laid: list[bool] = self._laid[low:high].tolist()
        job = low
        while job < high:
            if laid[job - low]:
                self._compress(job)
                job += 1
            elif self._planned >= self._settings.depth:
                job += 1  # those after it may have been promised something
            else:
                job += self._place(job, min(self._alike[job], high) - job)

    def result(self) -> Plan:
        """The plan, of all that were served."""
        start = self._dates.start
        dated = np.isfinite(start)
        far = (start > self._now + self._settings.horizon_seconds) & ~self._laid
        self._verdict[dated] = np.where(far, Verdict.BEYOND_HORIZON, Verdict.RESERVED)[dated]
        self._verdict[dated & (start <= self._now)] = Verdict.START
        return Plan(
            now=self._now,
            verdict=self._verdict,
            start=start,
            end=self._dates.end,
            pool=self._dates.pool,
            laid=self._laid,
            kept=self._kept,
            pools=tuple(Profile(lane.times, lane.free) for lane in self._board.pools),
            shared=Profile(self._board.shared.times, self._board.shared.free),
            aside=self._aside,
            evaluations=self._evaluations,
        )

    def _compress(self, job: int) -> None:
        """Move a job forward from where it was promised to start, if there is room before."""
        self._planned += 1
        dates, shape, seconds = self._dates, self._of[job], self._occupied[job]
        start, end, pool = float(dates.start[job]), float(dates.end[job]), int(dates.pool[job])
        bound = self._bounds.of(shape, seconds)
        fixed = self._fixed[job]
        if fixed or start <= bound or self._planned > self._settings.depth:
            return
        known = self._board.sooner(self._shapes[shape], pool, seconds, bound, start)
        if known is not None:
            self._evaluations += 1
            self._bounds.learn(shape, seconds, known)
        if known == start:
            return
        self._board.take(self._shapes[shape], pool, start, end, copies=-1)
        sooner, where = (known, pool) if known is not None else self._search(shape, seconds, bound)
        if sooner < start:
            self._bounds.forget()
            start, end, pool = sooner, self._board.grid.up(sooner + seconds), where
            dates.start[job], dates.end[job], dates.pool[job] = start, end, pool
        self._board.take(self._shapes[shape], pool, start, end)

    def _place(self, job: int, alike: int) -> int:
        """Give this job, and those after it that are alike and have room beside it, the earliest start.
        How many that was."""
        shape, seconds = self._of[job], self._occupied[job]
        bound = self._bounds.of(shape, seconds)
        start, pool = (bound, -1) if bound == math.inf else self._search(shape, seconds, bound)
        if start == math.inf:
            return self._never(job, alike)
        end, ask = self._board.grid.up(start + seconds), self._shapes[shape]
        copies = self._board.copies(
            ask, pool, start, end, min(alike, self._settings.depth - self._planned)
        )
        self._board.take(ask, pool, start, end, copies)
        self._planned += copies
        dates, those = self._dates, slice(job, job + copies)
        dates.start[those], dates.end[those], dates.pool[those] = start, end, pool
        return copies

    def _search(self, shape: int, seconds: float, bound: float) -> tuple[float, int]:
        self._evaluations += 1
        start, pool = self._board.earliest(self._shapes[shape], seconds, bound)
        self._bounds.learn(shape, seconds, start)
        return start, pool

    def _never(self, job: int, alike: int) -> int:
        """No start for this job nor for those alike, how many it has dealt with."""
        shape = self._shapes[self._of[job]]
        if not shape.pools:
            self._verdict[job : job + alike] = Verdict.TOO_LARGE
        elif not self._starved[job] or (pool := self._room_aside(shape)) is None:
            self._verdict[job : job + alike] = Verdict.UNDATED
        else:
            self._board.take(shape, pool, self._now, math.inf)
            for row, need in shape.amounts:
                self._aside[pool, row] += need
            for row, need in shape.shared:
                self._aside_shared[row] += need
            self._verdict[job], self._dates.pool[job] = Verdict.ASIDE, pool
            self._planned += 1
            return 1
        return alike

    def _room_aside(self, shape: Shape) -> int | None:
        """The pool that lacks least of what the shape asks for now, of those which are not to be emptied
        for others already: keeping more aside than there is would start nobody sooner."""
        stock, taken = self._capacity.shared, self._aside_shared
        if any(taken[row] + need > stock[row] for row, need in shape.shared):
            return None
        best: int | None = None
        least = math.inf
        for pool in shape.pools:
            whole, aside = self._capacity.pools[pool], self._aside[pool]
            if any(aside[row] + need > whole[row] for row, need in shape.amounts):
                continue
            free = self._board.pools[pool].now()
            lacks = max(
                (1 - (free[row] + aside[row]) / need for row, need in shape.amounts), default=0.0
            )
            if lacks < least:
                best, least = pool, lacks
        return best


def _last_alike(of: Ints, waiting: Waiting) -> list[int]:
    """For each job, (m,), the first one after it that is not served exactly as it is."""
    if not len(waiting):
        return []
    fresh = np.isinf(waiting.promised)
    new = np.ones(len(waiting), dtype=np.bool_)
    new[1:] = (
        (of[1:] != of[:-1])
        | (waiting.seconds[1:] != waiting.seconds[:-1])
        | (waiting.starved[1:] != waiting.starved[:-1])
        | ~fresh[1:]
        | ~fresh[:-1]
    )
    edges = np.append(np.flatnonzero(new), len(waiting))
    following: list[int] = edges[np.searchsorted(edges, np.arange(len(waiting)), side="right")].tolist()
    return following
