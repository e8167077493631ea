"""Dominant resource fairness among jobs whose tasks need all their resources together.

Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica: Dominant Resource Fairness: Fair Allocation of
Multiple Resource Types (NSDI 2011). `divisible` lets a task be cut anywhere; there nobody is better off
alone with an equal part of the cluster, with a lie about the shape of its tasks, or with what somebody
else has, and nobody can have more without somebody having less. `whole` gives whole tasks (or gangs: a
row is any bundle that is given at once); there an envied row has at most one bundle too many.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.tree import tree
from tests.schedule.shares.filling import fill

__all__ = ["divisible", "dominant", "whole"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 1e-9


def dominant(amounts: Floats, capacity: Floats) -> Floats:
    """(m,): the largest share of a resource in each row of `amounts` (m, r); unbounded ones count 0.

    What is used of a resource of which there is none is an infinite share.
    """
    share = np.where(amounts > 0, np.inf, 0.0)
    np.divide(amounts, capacity, out=share, where=capacity > 0)
    return share.max(axis=1, initial=0.0)


def divisible(need: Floats, most: Floats, capacity: Floats, weight: Floats | None = None) -> Floats:
    """Tasks (m,), not whole, of each row: `need` (m, r) per task, `most` (m,) of them, `capacity` (r,).

    Raises ValueError when all weights (m,) are 0, as then nobody would get anything, and where neither
    `most` nor the capacity ends what a row could have.
    """
    count = len(need)
    weight = _weights(weight, count)
    most = _most(need, most, capacity)
    if not np.isfinite(most).all():
        raise ValueError(f"nothing bounds row {int(np.argmax(~np.isfinite(most)))}")
    wish = need * most[:, None]
    given = fill(tree(np.full(count, -1)), wish, weight, np.full(wish.shape, np.inf), capacity)
    tasks = most.copy()
    parts = np.divide(given, wish, out=np.ones_like(wish), where=wish > 0)
    return tasks * parts.min(axis=1, initial=1.0)


def whole(need: Floats, most: Ints, capacity: Floats, weight: Floats | None = None) -> Ints:
    """Whole tasks (m,) of each row, always to the one that will be least ahead with one more.

    Where the next one does not fit, all that need what it lacks stop, though smaller ones might fit:
    this says who may have how much, and what stays free is for whoever can use it. Ties go to the first
    row. Raises ValueError when all weights (m,) are 0.
    """
    weight = _weights(weight, len(need))
    step = np.full(len(need), np.inf)
    np.divide(dominant(need, capacity), weight, out=step, where=weight > 0)
    tasks = np.zeros(len(need), dtype=np.int64)
    left = capacity.astype(np.float64)
    slack = _ROUNDING * np.where(np.isfinite(capacity), np.maximum(capacity, 1.0), 1.0)
    full = np.zeros(capacity.shape, dtype=np.bool_)
    queue = [
        (float(step[row]), row) for row in range(len(need)) if most[row] > 0 and np.isfinite(step[row])
    ]
    heapify(queue)
    while queue:
        _, row = heappop(queue)
        if (full & (need[row] > 0)).any():
            continue
        lacks = need[row] > left + slack
        if lacks.any():
            full |= lacks
            continue
        left -= need[row]
        tasks[row] += 1
        if tasks[row] < most[row]:
            heappush(queue, (float(step[row] * (tasks[row] + 1)), row))
    return tasks


def _weights(weight: Floats | None, count: int) -> Floats:
    found = np.ones(count) if weight is None else weight.astype(np.float64)
    if np.isnan(found).any() or np.isinf(found).any() or (found < 0).any():
        raise ValueError("a weight is a finite number from 0 up")
    if count and not found.any():
        raise ValueError("all weights are 0: nobody has a share")
    return found


def _most(need: Floats, most: Floats, capacity: Floats) -> Floats:
    """(m,): no more than what one row could have of the whole cluster."""
    alone = np.full(need.shape, np.inf)
    np.divide(capacity, need, out=alone, where=need > 0)
    return np.minimum(most, alone.min(axis=1, initial=np.inf))
