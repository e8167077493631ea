"""What a plan is made from: what there is, what runs, and who waits, as arrays.

A pool is a class of equal nodes; a task may stand on any of them, so only the pool's totals count.
Shared amounts (licences, a storage quota) are one stock for all pools. The amounts of a pool may have a
column that counts whole nodes, see `nodes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.grid import Grid

__all__ = ["Capacity", "Settings", "Waiting", "Work"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Capacity:
    """Of `c` pools and `r` resources, with `s` shared amounts."""

    pools: Ints
    """(c, r): all that each pool has, in use or not."""
    shared: Ints
    """(s,)."""
    surplus: Ints
    """(c, r): of what is in use, what elastic jobs have beyond their minimum and waiting jobs may have
    back. It is no part of `Work`."""

    def __post_init__(self) -> None:
        """Raises ValueError where shapes differ or an amount is negative."""
        _require(
            self.pools.ndim == 2 and self.surplus.shape == self.pools.shape, "pools and surplus (c, r)"
        )
        _require(self.shared.ndim == 1, "shared (s,)")
        for amounts in (self.pools, self.shared, self.surplus):
            _require(not (amounts < 0).any(), "capacity is not below 0")


@dataclass(frozen=True)
class Work:
    """What runs and is not taken back for others: `n` rows, several of one job where it spans pools."""

    pool: Ints
    """(n,)."""
    amounts: Ints
    """(n, r), in its pool."""
    shared: Ints
    """(n, s)."""
    end: Floats
    """(n,): when its capacity is back at the latest (its wall time and grace have passed), infinity
    where nobody knows. At or before now: it is overdue, and still there."""

    def __post_init__(self) -> None:
        """Raises ValueError where shapes differ, an amount is negative or an end is no time."""
        n = len(self.pool)
        _require(self.amounts.ndim == 2 and len(self.amounts) == n, "amounts (n, r)")
        _require(self.shared.ndim == 2 and len(self.shared) == n, "shared (n, s)")
        _require(
            self.end.shape == (n,) and not np.isnan(self.end).any(), "an end (n,) is a time or infinity"
        )
        _require(
            not (self.amounts < 0).any() and not (self.shared < 0).any(), "work has amounts above 0"
        )

    def overdue(self, now: float) -> Flags:
        """(n,): should have ended and has not."""
        return self.end <= now


@dataclass(frozen=True)
class Waiting:
    """Jobs in the order in which they are served, higher classes first: `m` of them."""

    key: Ints
    """(m,): one number for each job, the same in each plan."""
    rank: Ints
    """(m,): its class, falling; only a higher one may move a promised date."""
    amounts: Ints
    """(m, r): all of the job together, its coordinator and parameter servers included, in one pool."""
    pools: Flags
    """(m, c): where it may run."""
    shared: Ints
    """(m, s)."""
    seconds: Floats
    """(m,): after which its capacity is back, wall time and grace; infinity where nobody knows."""
    promised: Floats
    """(m,): the date it has been promised, infinity where none. Who asks for more than when it was told
    has none: those whose dates come after would start later for it."""
    promised_pool: Ints
    """(m,): in which pool, -1 where none."""
    fixed: Flags
    """(m,): its date was found with a place on nodes: it stays as it is, and is taken for given."""
    starved: Flags
    """(m,): has waited so long that capacity is kept for it even if no date can be told."""

    def __post_init__(self) -> None:
        """Raises ValueError where shapes differ, classes rise, or an amount or a time is none."""
        m = len(self.key)
        _require(len(np.unique(self.key)) == m, "each waiting job has a key of its own")
        for name in ("rank", "seconds", "promised", "promised_pool", "fixed", "starved"):
            _require(getattr(self, name).shape == (m,), f"{name} (m,)")
        for name in ("amounts", "pools", "shared"):
            matrix = getattr(self, name)
            _require(matrix.ndim == 2 and len(matrix) == m, f"{name} (m, ...)")
        _require(not (np.diff(self.rank) > 0).any(), "higher classes come first")
        _require(not (self.amounts < 0).any() and not (self.shared < 0).any(), "jobs ask for 0 or more")
        _require(bool((self.seconds > 0).all()), "a job runs for more than 0 seconds")
        _require(not np.isnan(self.promised).any(), "a promised date is a time, or infinity for none")
        placed = (self.promised_pool >= 0) & (self.promised_pool < self.pools.shape[1])
        _require(bool((placed | np.isinf(self.promised)).all()), "a promise names its pool")

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Settings:
    """How far, how deep and how finely a plan looks."""

    depth: int = 5000
    """So many jobs get a place in the plan; those that can have none do not count."""
    horizon_seconds: float = math.inf
    """Dates farther off are planned but not promised."""
    resolution_seconds: float = 60.0
    """Steps of the grid near now, 0 for none at all."""
    slack_seconds: float = 10.0
    """Between a decision and a job's start, and between its end and its capacity being back."""
    notice_seconds: float = 30.0
    """In which surplus is back once it is asked for; above 0."""
    lateness_seconds: float = 0.0
    """By so much a promised date may be put off, and those after it with it, where what it waits for
    ends late. One that has to wait longer goes behind those that can be kept."""
    overdue_seconds: float = 60.0
    """In which work is expected to end that should have ended."""

    def __post_init__(self) -> None:
        """Raises ValueError for a number that is none or below 0."""
        for name, value in vars(self).items():
            _require(value >= 0, f"{name} is 0 or more, not {value}")
        _require(self.resolution_seconds < math.inf, "a resolution is finite")
        _require(self.notice_seconds > 0, "nothing that is in use is back in no time")

    def grid(self, now: float) -> Grid:
        """That of a plan made now."""
        return Grid(now, self.resolution_seconds)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(rule)
