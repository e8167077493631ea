"""Short ways to write what a plan is made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoal.schedule.backfill.asks import Capacity, Settings, Waiting, Work

EXACT = Settings(resolution_seconds=0, slack_seconds=0, notice_seconds=1, overdue_seconds=1)
"""No rounding and no slack: dates can be told in the head."""

MINUTE = 60.0
FOREVER = math.inf


@dataclass(frozen=True)
class Ask:
    """One waiting job; amounts in its pool, allowed everywhere unless said."""

    amounts: tuple[int, ...]
    seconds: float = FOREVER
    rank: int = 0
    shared: tuple[int, ...] = ()
    pools: tuple[int, ...] | None = None
    promised: float = FOREVER
    promised_pool: int = -1
    fixed: bool = False
    starved: bool = False
    key: int | None = None


@dataclass(frozen=True)
class Run:
    """One running piece of work."""

    amounts: tuple[int, ...]
    end: float = FOREVER
    pool: int = 0
    shared: tuple[int, ...] = ()


def cluster(*pools: tuple[int, ...], shared: tuple[int, ...] = (), surplus=None) -> Capacity:
    have = np.array(pools, dtype=np.int64)
    lent = np.zeros_like(have) if surplus is None else np.array(surplus, dtype=np.int64)
    return Capacity(have, np.array(shared, dtype=np.int64), lent)


def running(capacity: Capacity, *runs: Run) -> Work:
    return Work(
        np.array([run.pool for run in runs], dtype=np.int64),
        _matrix([run.amounts for run in runs], capacity.pools.shape[1]),
        _matrix([run.shared for run in runs], len(capacity.shared)),
        np.array([run.end for run in runs], dtype=np.float64),
    )


def waiting(capacity: Capacity, *asks: Ask) -> Waiting:
    pools = len(capacity.pools)
    allowed = np.zeros((len(asks), pools), dtype=np.bool_)
    for row, ask in zip(allowed, asks, strict=True):
        row[list(range(pools) if ask.pools is None else ask.pools)] = True
    return Waiting(
        key=np.array(
            [at if ask.key is None else ask.key for at, ask in enumerate(asks)], dtype=np.int64
        ),
        rank=np.array([ask.rank for ask in asks], dtype=np.int64),
        amounts=_matrix([ask.amounts for ask in asks], capacity.pools.shape[1]),
        pools=allowed,
        shared=_matrix([ask.shared for ask in asks], len(capacity.shared)),
        seconds=np.array([ask.seconds for ask in asks], dtype=np.float64),
        promised=np.array([ask.promised for ask in asks], dtype=np.float64),
        promised_pool=np.array([ask.promised_pool for ask in asks], dtype=np.int64),
        fixed=np.array([ask.fixed for ask in asks], dtype=np.bool_),
        starved=np.array([ask.starved for ask in asks], dtype=np.bool_),
    )


def promised(asks: Sequence[Ask], plan) -> list[Ask]:
    """The same jobs, each with the date that the plan gave it."""
    kept = []
    for ask, start, pool in zip(asks, plan.start.tolist(), plan.pool.tolist(), strict=True):
        dated = start < FOREVER
        kept.append(replace(ask, promised=start, promised_pool=pool if dated else -1))
    return kept


def _matrix(rows: Sequence[tuple[int, ...]], width: int) -> np.ndarray:
    """Rows that are shorter are filled with zeros."""
    filled = [(*row, *([0] * (width - len(row)))) for row in rows]
    return np.array(filled, dtype=np.int64).reshape(len(rows), width)
