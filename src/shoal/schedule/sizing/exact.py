"""The best sizes there are, by trying all of them: for as many jobs as that takes no time.

One job after the other is added to those before it, and for every number of GPUs the most that they can
earn together is kept. The answer cannot be improved, so whoever asks again with the sizes that it gave
gets the same: what nobody has to pay any more has only made them better.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_TRIED", "best"]

MOST_TRIED = 4_000_000
"""Jobs times sizes times GPUs: some hundredths of a second."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def best(sizes: Ints, earned: Floats, capacity: int) -> Ints | None:
    """Of each job one of its sizes (m, k), all together at most `capacity`, that earn (m, k) most; of
    equals the first. What cannot be had earns minus infinity. None: not all can have one."""
    there = np.arange(capacity + 1)
    most = np.zeros(capacity + 1)
    chosen: list[Ints] = []
    for size, each in zip(sizes, earned, strict=True):
        left = there[None, :] - size[:, None]
        total = np.where(left >= 0, most[np.maximum(left, 0)], -np.inf) + each[:, None]
        option = total.argmax(axis=0)
        chosen.append(option)
        most = total[option, there]
    if not np.isfinite(most[capacity]):
        return None
    found = np.zeros(len(sizes), dtype=np.int64)
    left = capacity
    for at in range(len(sizes) - 1, -1, -1):
        found[at] = sizes[at, chosen[at][left]]
        left -= int(found[at])
    return found
