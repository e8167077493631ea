"""Speed over sizes: measured or predicted values at the sizes of a grid, and their concave envelope."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Curves", "concave", "every_size", "from_nothing", "size_grid"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 1e-9
_EACH = 16
_PARTS = 8


def size_grid(gpus_per_node: int, most: int) -> Ints:
    """Sizes that leave no crumbs: powers of two inside a node, then whole nodes, up to `most`."""
    sizes = {1 << power for power in range(gpus_per_node.bit_length())}
    inside = {size for size in sizes if size <= gpus_per_node and gpus_per_node % size == 0}
    whole = set(range(gpus_per_node, most + 1, gpus_per_node))
    return np.array(sorted(size for size in inside | whole if size <= most), dtype=np.int64)


def every_size(gpus_per_node: int, most: int) -> Ints:
    """All sizes up to sixteen, then whole nodes, in steps of an eighth of the size: what lies between
    makes no difference worth having."""
    sizes = list(range(1, min(most, _EACH) + 1))
    while sizes[-1] < most:
        step = max(1, sizes[-1] // _PARTS // gpus_per_node) * gpus_per_node
        following = (sizes[-1] // gpus_per_node) * gpus_per_node + step
        sizes.append(min(most, following))
    return np.array(sizes, dtype=np.int64)


@dataclass(frozen=True)
class Curves:
    """Of `m` jobs over a grid of `k` sizes."""

    grid: Ints
    """(k,), ascending."""
    speed: Floats
    """(m, k): the concave envelope; speed at the smallest size is 1."""
    reached: NDArray[np.bool_]
    """(m, k): sizes at which the job is as fast as its envelope, and faster than with less. Only those
    are worth having."""

    def of(self, rows: Ints) -> Curves:
        """These rows, in this order."""
        return Curves(self.grid, self.speed[rows], self.reached[rows])

    def at(self, sizes: Ints) -> Floats:
        """Speed of each job at a size of its own, (m,), linear between those of the grid and constant
        outside of it."""
        low = np.clip(np.searchsorted(self.grid, sizes, side="right") - 1, 0, len(self.grid) - 1)
        high = np.minimum(low + 1, len(self.grid) - 1)
        rows = np.arange(len(sizes))
        span = np.maximum(self.grid[high] - self.grid[low], 1)
        part = np.clip((sizes - self.grid[low]) / span, 0.0, 1.0)
        return self.speed[rows, low] + part * (self.speed[rows, high] - self.speed[rows, low])


def concave(grid: Ints, values: Floats) -> Curves:
    """The least concave curves above `values` (m, k), of which a row's first is above 0; what a larger
    size loses counts as nothing gained. Raises ValueError for values that are no speeds."""
    if not np.isfinite(values).all() or (values < 0).any() or (values[:, 0] <= 0).any():
        raise ValueError("a speed is a finite number, not below 0, and above 0 at the smallest size")
    speed = np.maximum.accumulate(values / values[:, :1], axis=1)
    envelope = _envelope(grid, speed)
    reached = speed >= envelope * (1 - _ROUNDING)
    reached[:, 1:] &= speed[:, 1:] > speed[:, :-1] * (1 + _ROUNDING)
    return Curves(grid, envelope, reached)


def from_nothing(curves: Curves) -> Floats:
    """(m, k): concave also between no GPU at all and the smallest size."""
    sizes = np.concatenate((np.zeros(1, dtype=np.int64), curves.grid))
    speed = np.concatenate((np.zeros((len(curves.speed), 1)), curves.speed), axis=1)
    return _envelope(sizes, speed)[:, 1:]


def _envelope(grid: Ints, speed: Floats) -> Floats:
    """The highest chord over each size; most speeds are concave already, but for rounding."""
    slope = np.diff(speed, axis=1) / np.diff(grid)
    bent = np.flatnonzero((slope[:, 1:] > slope[:, :-1] * (1 + _ROUNDING)).any(axis=1))
    if not len(bent):
        return speed
    envelope = speed.copy()
    envelope[bent] = _chords(grid, speed[bent])
    return envelope


def _chords(grid: Ints, speed: Floats) -> Floats:
    envelope = speed.copy()
    for first in range(len(grid) - 1):
        ahead = (grid[first + 1 :] - grid[first]).astype(np.float64)
        slope = (speed[:, first + 1 :] - speed[:, [first]]) / ahead
        steepest = np.maximum.accumulate(slope[:, ::-1], axis=1)[:, ::-1]
        chord = speed[:, [first]] + steepest * ahead
        np.maximum(envelope[:, first + 1 :], chord, out=envelope[:, first + 1 :])
    return envelope
