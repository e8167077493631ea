"""A change of size stops a job for a moment; it has to gain more than it costs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.sizing.curves import Curves

__all__ = ["damp"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def damp(
    curves: Curves,
    wanted: Ints,
    current: Ints,
    remaining: Floats,
    capacity: int,
    cost: Floats,
    eager: float = 3.0,
) -> Ints:
    """`wanted` with the changes left out that are not worth a restart.

    `current` are the sizes now, 0 for who has none; `remaining` seconds of work at the smallest size;
    `cost` seconds of a restart, all (m,). A job grows only if it ends `eager` restarts earlier; it
    shrinks only if somebody needs what it gives, those with the least left keep theirs first.
    """
    sizes = wanted.copy()
    sooner = remaining / _speed(curves, current) - remaining / _speed(curves, wanted)
    idle = (current > 0) & (wanted > current) & (sooner < eager * cost)
    sizes[idle] = current[idle]
    left = capacity - int(sizes.sum())
    shrinking = np.flatnonzero((sizes > 0) & (sizes < current))
    for job in shrinking[np.argsort(remaining[shrinking], kind="stable")].tolist():
        kept = int(current[job] - sizes[job])
        if kept <= left:
            sizes[job] = current[job]
            left -= kept
    return sizes


def _speed(curves: Curves, sizes: Ints) -> Floats:
    """At any size, linear between those of the grid."""
    at = np.clip(np.searchsorted(curves.grid, sizes, side="right") - 1, 0, len(curves.grid) - 1)
    above = np.minimum(at + 1, len(curves.grid) - 1)
    rows = np.arange(len(sizes))
    low, high = curves.speed[rows, at], curves.speed[rows, above]
    span = np.maximum(curves.grid[above] - curves.grid[at], 1)
    part = np.clip((sizes - curves.grid[at]) / span, 0.0, 1.0)
    return low + (high - low) * part
