"""Wall-time limits and spent budgets: a checkpoint signal, a grace period, then the stop.

Both end a job in the same way, so what it has computed is not lost: at the limit it is told to write a
checkpoint, and it is stopped only when the grace period has passed since it was really told. A scheduler
that was away at the limit tells it late, and it has its grace all the same. A limit that is raised in
the meantime takes the signal back. When a budget is exhausted is for its keeper to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_BUDGET", "Limits", "Spending", "Stage", "limits"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_BUDGET = -1


class Stage(IntEnum):
    """What is to be done with a running job now."""

    RUN = 0
    CHECKPOINT = 1
    """Tell it that it will be stopped after its grace period."""
    GRACE = 2
    """It has been told, and is given time."""
    STOP = 3


@dataclass(frozen=True)
class Spending:
    """Which of `b` budgets (node-hours, GPU-hours) each of `n` jobs is charged to."""

    charged: Flags
    """(n, b)."""
    until: Floats
    """(b,): when each is exhausted at today's rate: minus infinity where it was before, so that a job
    that was told of it stays told; infinity where it never is."""


@dataclass(frozen=True)
class Limits:
    """Of `n` running jobs."""

    stage: NDArray[np.int8]
    """(n,): of `Stage`."""
    due: Floats
    """(n,): when a running job has to be told, or a told one stopped; now where that is overdue,
    infinity where never."""
    end: Floats
    """(n,): when it is stopped at the latest if it is told in time: the end of `Work`."""
    budget: Ints
    """(n,): the budget that ends it before its wall time does, `NO_BUDGET` where none does."""


def limits(
    started: Floats,
    wall_seconds: Floats,
    grace_seconds: Floats,
    told: Floats,
    spending: Spending,
    now: float,
) -> Limits:
    """`told` is when each job was given the signal, NaN where it was not; an infinite wall time is none.
    All (n,). Raises ValueError for a wall time that is not above 0 s, or a grace that is below."""
    if not ((wall_seconds > 0).all() and (grace_seconds >= 0).all() and np.isfinite(started).all()):
        raise ValueError("a job has started, its wall time is above 0 s, and its grace 0 s or more")
    wall = started + wall_seconds
    until, budget = _first_exhausted(spending)
    limit = np.minimum(wall, until)
    informed = told >= limit  # not where NaN; told of a limit that was raised since counts for nothing
    stop = np.where(informed, told, np.maximum(limit, now)) + grace_seconds
    stage = np.full(len(started), Stage.RUN, dtype=np.int8)
    stage[now >= limit] = Stage.CHECKPOINT
    stage[informed] = np.where(now < stop, Stage.GRACE, Stage.STOP)[informed]
    due = np.maximum(np.where(informed, stop, limit), now)
    return Limits(stage, due, stop, np.where(until < wall, budget, NO_BUDGET))


def _first_exhausted(spending: Spending) -> tuple[Floats, Ints]:
    """Of the budgets of each job the one exhausted first, and when; infinity where it has none."""
    n = len(spending.charged)
    if not len(spending.until):
        return np.full(n, math.inf, dtype=np.float64), np.full(n, NO_BUDGET, dtype=np.int64)
    ends = np.where(spending.charged, spending.until, math.inf)
    first = np.asarray(ends.argmin(axis=1), dtype=np.int64)
    return np.asarray(ends.min(axis=1), dtype=np.float64), first
