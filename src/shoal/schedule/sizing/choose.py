"""The size of each job, at one price for a GPU, with what a change of size costs.

Time is money here: with weight w and speed s(n) a job earns w s(n) a second on n GPUs, pays one for
being there at all (it waits to be done) and the price for each GPU. Over the time that a decision
holds, the best size is the one that earns most; any but the present one earns nothing while a job
restarts. The price is the lowest at which all get what they choose.

Sizes are whole and steps are large, so at that price GPUs may be left, or just too few be there: both
ways of making it fit are tried, and the better one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.sizing import exact
from shoal.schedule.sizing.curves import Curves

__all__ = ["Demand", "choose"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_HALVINGS = 40
_STEADY = 0.01


@dataclass(frozen=True)
class Demand:
    """What m jobs want; arrays of shape (m,)."""

    curves: Curves
    weight: Floats
    """What a second of work at the smallest size is worth."""
    current: Ints
    """Sizes now; 0: none yet."""
    remaining: Floats
    """Seconds of work left at the smallest size."""
    restart: Floats
    """Seconds that a change of size costs; the first start costs the same at any size."""
    logarithmic: bool = False
    """What counts is how many times as fast a job is: for when nobody knows how much is left."""


def choose(demand: Demand, capacity: int, horizon: float, *, steady: bool = False) -> Ints:
    """Sizes, (m,), that together are at most `capacity`; 0 where there is not even the smallest left.

    `horizon`: seconds for which a decision is thought to hold, or until the job ends if that is sooner.
    `steady`: who asks again, with the sizes given as those that are there, is to get the same. For few
    jobs the best are found without a price; of many none changes for next to nothing.
    """
    smallest = int(demand.curves.grid[0])
    count = len(demand.weight)
    if count * smallest >= capacity:
        sizes = np.zeros(count, dtype=np.int64)
        first = np.argsort(-demand.weight, kind="stable")[: capacity // smallest]
        sizes[first] = smallest
        return sizes
    options = _Options(demand, capacity, horizon)
    if steady and options.sizes.size * capacity <= exact.MOST_TRIED:
        found = exact.best(np.roll(options.sizes, 1, 1), np.roll(options.earned, 1, 1), capacity)
        assert found is not None, "all can have the smallest"
        return found
    found = _priced(options, capacity)
    if steady and (demand.current > 0).all() and demand.current.sum() <= capacity:
        kept = options.filled(demand.current, capacity)
        more, less = (float(options.earning(each).sum()) for each in (found, kept))
        return found if more - less > _STEADY * abs(less) else kept
    return found


def _priced(options: _Options, capacity: int) -> Ints:
    low, high = 0.0, options.prohibitive
    unpaid = options.at(low)
    if unpaid.sum() <= capacity:
        return unpaid
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if options.at(middle).sum() > capacity:
            low = middle
        else:
            high = middle
    # a job that ends much sooner with more is not kept from it by any price: hence trimmed as well
    tried = [options.trimmed(options.at(price), capacity) for price in (high, low)]
    return max(
        (options.filled(each, capacity) for each in tried),
        key=lambda sizes: float(options.earning(sizes).sum()),
    )


class _Options:
    """The sizes of the grid, and the one that a job has: (m, k + 1)."""

    def __init__(self, demand: Demand, capacity: int, horizon: float) -> None:
        curves, current = demand.curves, demand.current
        count = len(current)
        self.sizes = np.hstack(
            (np.broadcast_to(curves.grid, (count, len(curves.grid))), current[:, None])
        )
        speed = np.hstack((curves.speed, curves.at(current)[:, None]))
        possible = np.hstack((curves.reached, (current > 0)[:, None])) & (self.sizes <= capacity)
        self._rows = np.arange(count)
        changes = (self.sizes != current[:, None]) & (current > 0)[:, None]
        lost = np.where(changes, demand.restart[:, None], 0.0)
        seconds = np.minimum(demand.remaining[:, None] / speed + lost, horizon)
        self._seconds = seconds
        trained = np.maximum(seconds - lost, 1e-9)
        if demand.logarithmic:  # of the mean speed, with the restart in it
            value = seconds * (1.0 + np.log(speed * trained / seconds))
        else:
            value = trained * speed
        earned = demand.weight[:, None] * value - seconds
        self.earned = np.where(possible, earned, -np.inf)
        self.prohibitive = 1.0 + 4.0 * float(np.abs(earned).max() / seconds.min())

    def at(self, price: float) -> Ints:
        """What each job chooses at this price, the smallest of equals."""
        best = (self.earned - price * self._seconds * self.sizes).argmax(axis=1)
        return self.sizes[self._rows, best]

    def earning(self, sizes: Ints) -> Floats:
        """What each job earns at a size that it can have."""
        return np.where(self.sizes == sizes[:, None], self.earned, -np.inf).max(axis=1)

    def trimmed(self, sizes: Ints, capacity: int) -> Ints:
        """Less and less, where that loses least for each GPU that is wanted, until it fits."""
        sizes = sizes.copy()
        while (over := int(sizes.sum()) - capacity) > 0:
            less = sizes[:, None] - self.sizes
            possible = (less > 0) & (self.sizes > 0) & np.isfinite(self.earned)
            loss = np.where(possible, self.earning(sizes)[:, None] - self.earned, np.inf)
            rate = loss / np.clip(less, 1, over)
            job, option = np.unravel_index(int(rate.argmin()), rate.shape)
            sizes[job] = self.sizes[job, option]
        return sizes

    def filled(self, sizes: Ints, capacity: int) -> Ints:
        """What is left goes, step by step, where it earns most a GPU."""
        sizes = sizes.copy()
        left = capacity - int(sizes.sum())
        rate = self._rates(self.sizes, self.earned, sizes, self.earning(sizes))
        while left > 0:
            job, option = divmod(int(rate.argmax()), rate.shape[1])
            if rate[job, option] <= 0:
                break
            more = int(self.sizes[job, option] - sizes[job])
            if more > left:  # and there will never be more
                rate[job, option] = 0.0
                continue
            left -= more
            sizes[job] += more
            row = slice(job, job + 1)
            rate[row] = self._rates(
                self.sizes[row], self.earned[row], sizes[row], self.earned[row, option]
            )
        return sizes

    @staticmethod
    def _rates(options: Ints, earned: Floats, sizes: Ints, earning: Floats) -> Floats:
        """What each larger size earns more than the present one for each GPU more; 0: nothing."""
        more = options - sizes[:, None]
        gain = earned - earning[:, None]
        return np.where((more > 0) & (gain > 0), gain / np.maximum(more, 1), 0.0)
