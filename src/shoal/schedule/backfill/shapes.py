"""Equal asks are one shape: what holds for one job of it holds for the next.

While a plan only takes, what is free only falls. So a job starts no earlier than an equal one before it,
nor than one with the same amounts and a shorter wall time; and where one can never start, neither can
the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Capacity, Waiting
from shoal.schedule.backfill.timeline import Needs

__all__ = ["Bounds", "Shape", "needs", "shapes"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """What some jobs ask for, whatever their wall times."""

    amounts: Needs
    """In whichever pool they run."""
    pools: tuple[int, ...]
    """In which they may run and which are large enough, ascending; none: too large, or not allowed."""
    shared: Needs


def needs(amounts: list[int]) -> Needs:
    """What is asked for of these, (r,), by index."""
    return [(row, need) for row, need in enumerate(amounts) if need]


def shapes(waiting: Waiting, capacity: Capacity) -> tuple[list[Shape], Ints]:
    """The distinct shapes in the order in which they first come, and the index of each job's, (m,)."""
    asks = np.concatenate((waiting.amounts, waiting.shared, waiting.pools.astype(np.int64)), axis=1)
    raw, width = np.ascontiguousarray(asks).tobytes(), asks.shape[1] * 8
    seen: dict[bytes, int] = {}
    index = [seen.setdefault(raw[at : at + width], len(seen)) for at in range(0, len(raw), width)]
    of = np.array(index if width else [0] * len(waiting), dtype=np.int64)
    first = np.unique(of, return_index=True)[1]
    lacking: Ints = np.maximum(waiting.amounts[first][:, np.newaxis] - capacity.pools, 0).sum(axis=2)
    lacking += np.maximum(waiting.shared[first] - capacity.shared, 0).sum(axis=1)[:, np.newaxis]
    room: NDArray[np.bool_] = waiting.pools[first] & (lacking == 0)
    lists = zip(
        waiting.amounts[first].tolist(), waiting.shared[first].tolist(), room.tolist(), strict=True
    )
    return [_shape(*rows) for rows in lists], of


def _shape(amounts: list[int], shared: list[int], room: list[bool]) -> Shape:
    pools = tuple(pool for pool, fits in enumerate(room) if fits)
    return Shape(needs(amounts), pools, needs(shared))


class Bounds:
    """For each shape and wall time: no start is earlier than this, as long as nothing is given back."""

    def __init__(self, now: float, count: int) -> None:
        self._now = now
        self._seconds: list[list[float]] = [[] for _ in range(count)]
        self._starts: list[list[float]] = [[] for _ in range(count)]

    def of(self, shape: int, seconds: float) -> float:
        """The latest start known of this shape and no longer wall time; now if none is."""
        at = bisect_right(self._seconds[shape], seconds)
        return self._starts[shape][at - 1] if at else self._now

    def learn(self, shape: int, seconds: float, start: float) -> None:
        """A search has found this start, infinity for none; it is not before what was known."""
        lengths, starts = self._seconds[shape], self._starts[shape]
        low, high = bisect_left(lengths, seconds), bisect_right(starts, start)
        lengths[low:high], starts[low:high] = [seconds], [start]

    def forget(self) -> None:
        """Something was given back."""
        for known in (*self._seconds, *self._starts):
            known.clear()
