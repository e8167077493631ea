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
Ints = NDArray[np.int64]

_EACH = 16
"""Of twice as many jobs each is looked at; of those behind, one stands for as many as are a part of so
many of those before it: the weight is a smooth function of the logarithm of the rank."""
_LEAST = 1e-9
_NOTHING = np.zeros(1)


def weights(curves: Curves, order: Sequence[int], capacity: int, patience: float = -0.5) -> Floats:
    """One for each row of `curves`; `order` has the rows from the last to end to the first."""
    rows = np.asarray(order, dtype=np.int64)
    found = np.zeros(len(rows))
    sizes = curves.grid.astype(np.float64)
    steps = np.diff(sizes, prepend=0.0)
    speed = from_nothing(curves)
    # an envelope is concave but for rounding, and steps are to be in order
    slope = np.minimum.accumulate(np.diff(speed, prepend=0.0) / steps, axis=1)
    others = _Others(capacity, sizes)
    start = 0
    while start < len(rows):
        alike = rows[start : start + max(1, start // _EACH)]
        first, count = alike[0], len(alike)
        start += count
        at_sizes, bends, at_bends = others.prices(start + patience, count)
        each = (at_sizes / speed[alike]).min(axis=1)
        if len(
            bends
        ):  # between two sizes of the grid the least may stand where the others' gain changes
            between = np.interp(bends, others.sizes, np.concatenate((_NOTHING, speed[first])))
            each *= min(1.0, float((at_bends / between).min()) / float(each[0]))
        found[alike] = each
        others.add(steps * count, float(each[0]) * slope[first])
    return found


class _Others:
    """What the jobs that end later make of what is left to them: F(n), as steps by density."""

    def __init__(self, capacity: float, grid: Floats) -> None:
        self._capacity = capacity
        self._grid = grid
        self.sizes = np.concatenate((_NOTHING, grid))
        self._falling: Floats = np.empty(0)
        """Minus the densities, and how many GPUs there are of each."""
        self._widths: Floats = np.empty(0)
        self._used = self._made = np.zeros(1)
        """F and where it is so: at its bends up to the capacity."""

    def prices(self, owed: float, count: int) -> tuple[Floats, Floats, Floats]:
        """What each of so many jobs alike would have to make for all together to make what is owed: at
        the sizes of the grid; sizes between them at which F changes its slope, and what at those."""
        left = np.maximum(self._capacity - self._grid * count, 0.0)
        made = np.interp(left, self._used, self._made)
        least = self._capacity - self._grid[-1] * count
        low, high = (self._used.searchsorted(at, side="right") for at in (least, self._capacity))
        high -= self._used[high - 1] == self._capacity
        bends = (self._capacity - self._used[low:high]) / count
        at_bends = np.maximum(owed - self._made[low:high], _LEAST) / count
        return np.maximum(owed - made, _LEAST) / count, bends, at_bends

    def add(self, widths: Floats, densities: Floats) -> None:
        """One more; its densities fall."""
        at = self._falling.searchsorted(-densities) + np.arange(len(widths))
        kept = np.ones(len(self._falling) + len(widths), dtype=np.bool_)
        kept[at] = False
        falling = _merged(kept, self._falling, at, -densities)
        widths = _merged(kept, self._widths, at, widths)
        used: Floats = np.concatenate((_NOTHING, widths)).cumsum()
        made: Floats = np.concatenate((_NOTHING, widths * -falling)).cumsum()
        # beyond the capacity there is nothing to be had
        end = int(used.searchsorted(self._capacity))
        self._used, self._made = used[: end + 1], made[: end + 1]
        self._falling, self._widths = falling[:end], widths[:end]


def _merged(kept: NDArray[np.bool_], there: Floats, at: Ints, new: Floats) -> Floats:
    both = np.empty(len(kept))
    both[kept] = there
    both[at] = new
    return both
