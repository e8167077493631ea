"""Dates that were promised, held against a new plan: who starts later now, and by which rule.

Two rules allow a date to move later: a higher class is planned where it was, or capacity that was
counted on is not there (nodes lost, work that holds on to what it should have given back). A job that
asks for more than before has no promise for that. Whatever else moves is a violation: the plan is
wrong.

Each move is tried again: the date must be impossible beside what runs, the higher classes, and those of
its class whose dates come first, where they are now. It is the higher class' doing if the date were
possible without it; if not, what was once possible no longer is, and then there must be a loss to
account for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Capacity, Settings, Waiting, Work
from shoal.schedule.backfill.board import Board
from shoal.schedule.backfill.keep import promised_ends
from shoal.schedule.backfill.plan import Plan, Verdict
from shoal.schedule.backfill.shapes import Shape, needs

__all__ = ["Move", "Promises", "Rule", "moves", "promises_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Promises:
    """What a plan has promised to `p` jobs."""

    key: Ints
    """(p,)."""
    date: Floats
    """(p,)."""
    pool: Ints
    """(p,)."""
    amounts: Ints
    """(p, r)."""
    shared: Ints
    """(p, s)."""
    seconds: Floats
    """(p,)."""
    capacity: Capacity
    """That there was."""


class Rule(IntEnum):
    """Why a date moved later."""

    VIOLATION = 0
    """No rule allows it."""
    HIGHER_CLASS = 1
    CAPACITY_LOST = 2
    ASKS_MORE = 3


@dataclass(frozen=True)
class Move:
    """One date that is later than it was."""

    job: int
    """Its place in the order of the new plan."""
    rule: Rule
    promised: float
    start: float
    """In the new plan; infinity where it has no date any more."""
    higher: tuple[int, ...]
    """Jobs of higher classes that are planned for what it needs at the time, by place."""


def promises_of(plan: Plan, waiting: Waiting, capacity: Capacity) -> Promises:
    """What `plan`, made for `waiting` and with `capacity`, promises: starts now, and dates."""
    those = plan.having(Verdict.START, Verdict.RESERVED)
    return Promises(
        key=waiting.key[those],
        date=plan.start[those],
        pool=plan.pool[those],
        amounts=waiting.amounts[those],
        shared=waiting.shared[those],
        seconds=waiting.seconds[those],
        capacity=capacity,
    )


def moves(
    before: Promises,
    plan: Plan,
    capacity: Capacity,
    work: Work,
    waiting: Waiting,
    settings: Settings,
    late: Flags,
) -> list[Move]:
    """Every date of `before` that `plan`, made from the rest, puts later, in the plan's order. Jobs that
    no longer wait have none. `late` (n,): work that holds its capacity longer than was known when the
    promises were made; what is overdue counts as that in any case."""
    _, old, new = np.intersect1d(before.key, waiting.key, assume_unique=True, return_indices=True)
    order = np.argsort(new)
    old, new = old[order], new[order]
    later = plan.start[new] > np.maximum(before.date[old], plan.now)
    if not later.any():
        return []
    loss = _Losses(before, capacity, work, late | work.overdue(plan.now))
    found: list[Move] = []
    for rank in np.unique(waiting.rank[new[later]])[::-1].tolist():
        mine = np.flatnonzero(waiting.rank[new] == rank)
        mine = mine[np.argsort(before.date[old[mine]], kind="stable")]
        judge = _Judge(rank, plan, capacity, work, waiting, settings)
        for promise, job, moved in zip(old[mine].tolist(), new[mine].tolist(), later[mine], strict=True):
            if plan.kept[job]:
                judge.keep(job)
            elif moved:
                found.append(judge.move(before, promise, job, loss))
                judge.put(job)
    return sorted(found, key=lambda each: each.job)


class _Losses:
    """What was counted on and is not there."""

    def __init__(self, before: Promises, capacity: Capacity, work: Work, late: Flags) -> None:
        self._pools = capacity.pools < before.capacity.pools
        self._shared = capacity.shared < before.capacity.shared
        for pool, amounts in zip(work.pool[late].tolist(), work.amounts[late], strict=True):
            self._pools[pool] |= amounts > 0
        self._shared |= (work.shared[late] > 0).any(axis=0)

    def concern(self, pool: int, amounts: Ints, shared: Ints) -> bool:
        """Whether any of it is of what this job needs."""
        return bool((self._pools[pool] & (amounts > 0)).any() or (self._shared & (shared > 0)).any())


class _Judge:
    """Of one class, job by job in order."""

    def __init__(
        self,
        rank: int,
        plan: Plan,
        capacity: Capacity,
        work: Work,
        waiting: Waiting,
        settings: Settings,
    ) -> None:
        self._plan, self._waiting, self._settings = plan, waiting, settings
        running = Board.of(capacity, work, settings, plan.now)
        self._ends = np.where(plan.verdict == Verdict.ASIDE, math.inf, plan.end)
        self._starts = np.where(plan.verdict == Verdict.ASIDE, plan.now, plan.start)
        self._higher = (waiting.rank > rank) & (plan.pool >= 0)
        kept = plan.kept & (waiting.rank == rank)
        self._begun = np.maximum(waiting.promised, plan.now)
        self._beside = _with(running, self._higher, plan.pool, self._starts, self._ends, waiting)
        ends = self._end(waiting.promised, waiting.seconds)
        self._alone = _with(running, kept, waiting.promised_pool, self._begun, ends, waiting)

    def keep(self, job: int) -> None:
        """Those whose dates come after have to do with the promise of this job."""
        waiting, pool = self._waiting, int(self._waiting.promised_pool[job])
        shape = _shape(pool, waiting.amounts[job], waiting.shared[job])
        end = self._end(waiting.promised[[job]], waiting.seconds[[job]])[0]
        self._beside.take(shape, pool, float(self._begun[job]), float(end))

    def put(self, job: int) -> None:
        """It is planned later than it was promised, and those whose dates come after have to do with
        that."""
        if math.isfinite(self._starts[job]):
            pool = int(self._plan.pool[job])
            shape = _shape(pool, self._waiting.amounts[job], self._waiting.shared[job])
            self._beside.take(shape, pool, float(self._starts[job]), float(self._ends[job]))

    def move(self, before: Promises, promise: int, job: int, loss: _Losses) -> Move:
        """Why the date of this job moved."""
        waiting, plan = self._waiting, self._plan
        amounts, shared = waiting.amounts[job], waiting.shared[job]
        pool, date = int(before.pool[promise]), float(before.date[promise])
        start = max(date, plan.now)
        end = float(self._end(before.date[[promise]], waiting.seconds[[job]])[0])
        overlapping = self._higher & (self._starts < end) & (self._ends > start)
        using = (plan.pool == pool) & (waiting.amounts[:, amounts > 0] > 0).any(axis=1)
        using |= (waiting.shared[:, shared > 0] > 0).any(axis=1)
        higher = tuple(np.flatnonzero(overlapping & using).tolist())
        shape = _shape(pool, amounts, shared)
        rule = Rule.VIOLATION
        if (
            (amounts > before.amounts[promise]).any()
            or (shared > before.shared[promise]).any()
            or waiting.seconds[job] > before.seconds[promise]
            or not waiting.pools[job, pool]
        ):
            rule = Rule.ASKS_MORE
        elif self._beside.fits(shape, pool, start, end):
            rule = Rule.VIOLATION
        elif higher and self._alone.fits(shape, pool, start, end):
            rule = Rule.HIGHER_CLASS
        elif loss.concern(pool, amounts, shared):
            rule = Rule.CAPACITY_LOST
        return Move(job, rule, date, float(plan.start[job]), higher)

    def _end(self, date: Floats, seconds: Floats) -> Floats:
        return promised_ends(date, seconds, self._settings, self._plan.now)


def _with(
    board: Board, those: Flags, pool: Ints, starts: Floats, ends: Floats, waiting: Waiting
) -> Board:
    return board.after(
        pool[those], starts[those], ends[those], waiting.amounts[those], waiting.shared[those]
    )


def _shape(pool: int, amounts: Ints, shared: Ints) -> Shape:
    return Shape(needs(amounts.tolist()), (pool,), needs(shared.tolist()))
