"""What a second of each job's work costs all jobs together.

Let jobs 1..m be numbered from the one that ends last to the one that ends first, s_j(n) the speed of job
j on n GPUs, w_j its weight, and F_i(n) the most that jobs 1..i can make of n GPUs,

    F_i(n) = max of  w_1 s_1(n_1) + ... + w_i s_i(n_i)  over  n_1 + ... + n_i <= n.

Time passes at the price of one second for every job that is there. Along the best schedule that price
is just paid by the work that gets done: F_i(N) = i for the N GPUs that there are, whichever i jobs are
left (Pontryagin's principle: the Hamiltonian of a problem without fixed end is zero, and the weights,
which are its costates, do not change, for speeds do not depend on what is left). Adding job i to the
others therefore fixes its weight:

    w_i = min over n of  (i - F_{i-1}(N - n)) / s_i(n).

More jobs will come, which is not in the problem; `patience` below 0 leans towards those that end soon,
above 0 towards those that end late.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.sizing.curves import Curves, from_nothing

__all__ = ["weights"]

Floats = NDArray[np.float64]

_MOST_AT_A_TIME = 256
"""Above so many jobs, that many stand for all: the weight is a smooth function of the rank."""


def weights(curves: Curves, order: Sequence[int], capacity: int, patience: float = -0.5) -> Floats:
    """One for each row of `curves`; `order` has the rows from the last to end to the first."""
    total = len(order)
    rows = np.asarray(order, dtype=np.int64)
    stride = -(-total // _MOST_AT_A_TIME)
    found = np.zeros(total)
    share = capacity / stride  # each of the sample stands for `stride` jobs, and has their GPUs
    widths, densities = np.empty(0), np.empty(0)
    sizes = curves.grid.astype(np.float64)
    speed = from_nothing(curves)
    steps = np.diff(sizes, prepend=0.0)
    for count, start in enumerate(range(0, total, stride), 1):
        others = _Others(share, widths, densities)
        alike = rows[start : start + stride]
        owed = count + patience
        each = (others.price(owed, sizes) / speed[alike]).min(axis=1)
        # between two sizes of the grid the least may stand where the others' gain changes
        bends = others.bends(sizes[-1])
        between = np.interp(bends, np.concatenate(([0.0], sizes)), (0.0, *speed[alike[0]]))
        least = float((others.price(owed, bends) / between).min(initial=np.inf))
        each *= min(1.0, least / float(each[0]))
        found[alike] = each
        density: Floats = float(each[0]) * np.diff(speed[alike[0]], prepend=0.0) / steps
        at = np.searchsorted(-densities, -density).astype(np.int64)
        densities, widths = np.insert(densities, at, density), np.insert(widths, at, steps)
    return found


class _Others:
    """What the jobs that end later make of what is left to them: F(n), as steps by density."""

    def __init__(self, capacity: float, widths: Floats, densities: Floats) -> None:
        self._capacity = capacity
        self._used = np.concatenate(([0.0], np.cumsum(widths)))
        self._made = np.concatenate(([0.0], np.cumsum(widths * densities)))

    def price(self, owed: float, size: Floats) -> Floats:
        """What a job of this size would have to make, for all together to make what is owed."""
        left = np.maximum(self._capacity - size, 0.0)
        return np.maximum(owed - np.interp(left, self._used, self._made), 1e-9)

    def bends(self, largest: float) -> Floats:
        """Sizes up to the largest at which F changes its slope."""
        sizes = self._capacity - self._used
        return sizes[(sizes > 0) & (sizes < largest)]
