"""Whole nodes as one more amount of a pool: a node is free when the last task on it has ended.

Eight free GPUs on four nodes are no free node. Jobs that take whole nodes ask for them in a column of
their own, and what runs takes, row by row, each node on which there is anything, until that has ended.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Work

__all__ = ["busy_nodes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def busy_nodes(work: Work, node: Ints, end: Floats, pool: Ints, column: int) -> Work:
    """`work` with a row for each node that has a task: it takes 1 of `column` of the node's `pool`
    (nodes,) until the last of its tasks, which are on `node` and end at `end`, both (tasks,), has
    ended."""
    last = np.full(len(pool), -math.inf)
    np.maximum.at(last, node, end)
    busy = np.flatnonzero(last > -math.inf)
    amounts = np.zeros((len(busy), work.amounts.shape[1]), dtype=np.int64)
    amounts[:, column] = 1
    shared = np.zeros((len(busy), work.shared.shape[1]), dtype=np.int64)
    return Work(
        pool=np.concatenate((work.pool, pool[busy])),
        amounts=np.concatenate((work.amounts, amounts)),
        shared=np.concatenate((work.shared, shared)),
        end=np.concatenate((work.end, last[busy])),
    )
