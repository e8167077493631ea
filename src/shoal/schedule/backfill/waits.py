"""Why a job does not start earlier: what it lacks at the last moment before, and who has it.

A view of the plan, made for one job when somebody asks, from the same timelines: those of what runs and
of what is planned before it. What ends at its start is what it waits for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Capacity, Settings, Waiting, Work
from shoal.schedule.backfill.board import Board, expected_ends
from shoal.schedule.backfill.plan import Plan, Verdict

__all__ = ["Wait", "waits_for"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Wait:
    """Of one job, in the pool where it starts, or of several where it lacks least."""

    pool: int
    """-1 where it may run in none."""
    resource: int
    """What there is least of, relative to what it asks for, the first of equals. From the number of
    resources of a pool on they are the shared amounts."""
    need: int
    free: int
    """At the last moment at which it cannot start, or, if it never can, for ever; not below 0."""
    running: Ints
    """Rows of work that hold some of it until the job starts, or until nobody knows when; ascending."""
    ahead: Ints
    """Jobs planned before it that do, or for which it is kept aside, in their order."""


def waits_for(
    job: int, plan: Plan, capacity: Capacity, work: Work, waiting: Waiting, settings: Settings
) -> Wait | None:
    """None for a job that starts now or was not looked at. The rest is what the plan was made from."""
    verdict = plan.verdict[job]
    if verdict in (Verdict.START, Verdict.BEYOND_DEPTH):
        return None
    needs = np.concatenate((waiting.amounts[job], waiting.shared[job]))
    if verdict == Verdict.TOO_LARGE:
        empty = Board.empty(capacity, settings, plan.now)
        pool, resource, free = _scarcest(empty, _allowed(job, plan, waiting), math.inf, needs)
        nobody = np.zeros(0, dtype=np.int64)
        return Wait(pool, resource, int(needs[resource]), free, nobody, nobody)
    before = _planned_before(job, plan, waiting)
    ends = np.where(plan.verdict == Verdict.ASIDE, math.inf, plan.end)
    starts = np.where(plan.verdict == Verdict.ASIDE, plan.now, plan.start)
    board = Board.of(capacity, work, settings, plan.now).after(
        plan.pool[before], starts[before], ends[before], waiting.amounts[before], waiting.shared[before]
    )
    moment = float(plan.start[job])
    pool, resource, free = _scarcest(board, _allowed(job, plan, waiting), moment, needs)
    running = _holds(work.pool, work.amounts, work.shared, pool, resource)
    running &= expected_ends(work, settings, plan.now) == moment
    ahead = (
        before & _holds(plan.pool, waiting.amounts, waiting.shared, pool, resource) & (ends == moment)
    )
    return Wait(
        pool, resource, int(needs[resource]), free, np.flatnonzero(running), np.flatnonzero(ahead)
    )


def _allowed(job: int, plan: Plan, waiting: Waiting) -> list[int]:
    if plan.pool[job] >= 0:
        return [int(plan.pool[job])]
    allowed: list[int] = np.flatnonzero(waiting.pools[job]).tolist()
    return allowed


def _planned_before(job: int, plan: Plan, waiting: Waiting) -> Flags:
    """(m,): was in the plan when this job looked for its place: who is served before it, and who of its
    class had a promise."""
    before = np.arange(len(waiting)) < job
    before |= plan.laid & (waiting.rank == waiting.rank[job])
    before[job] = False
    return before & (plan.pool >= 0)


def _scarcest(board: Board, pools: list[int], moment: float, needs: Ints) -> tuple[int, int, int]:
    """Of the pools the first that lacks least, and the resource it lacks most of, and what is free."""
    asked = np.flatnonzero(needs)
    best, found = -math.inf, (-1, int(asked[0]) if len(asked) else 0, 0)
    for pool in pools:
        free = np.maximum(
            np.concatenate((board.pools[pool].before(moment), board.shared.before(moment))), 0
        )
        share = free[asked] / needs[asked]
        if len(asked) and share.min() > best:
            best, at = float(share.min()), int(asked[share.argmin()])
            found = (pool, at, int(free[at]))
    return found


def _holds(at: Ints, amounts: Ints, shared: Ints, pool: int, resource: int) -> Flags:
    """(n,): has some of the resource, in this pool if it is one of a pool's."""
    if resource >= amounts.shape[1]:
        return shared[:, resource - amounts.shape[1]] > 0
    return (at == pool) & (amounts[:, resource] > 0)
