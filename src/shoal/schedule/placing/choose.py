"""The rule by which tasks are dealt out, on bare counts: of nodes, or of racks, it is the same.

As few as can be: if one holds all, the tightest of those; else the roomiest are filled until the rest
fits on one, and that is the tightest that holds it. What is roomy and filled whole leaves no crumbs.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.placing.asks import Ints

__all__ = ["FAR", "evenly", "fewest", "tightest_first"]

FAR = 1 << 62
"""The key of a position that holds nothing; above all others."""

Chosen = tuple[Ints, Ints]
"""Positions (m,), and how many tasks each gets, (m,), all above 0."""


def fewest(holds: Ints, key: Ints, count: int) -> Chosen:
    """`count` tasks, at most `holds.sum()`, on as few positions as can be.

    `holds` (n,) tasks fit at each, `key` (n,) is least where it is tightest, and `FAR` where none fits;
    ties go to the first. The number of positions is the least possible: the roomiest first is optimal
    for that.
    """
    if count <= 0:
        return _NOTHING, _NOTHING
    if count == 1:
        position = key.argmin()
    else:
        enough = holds >= count
        keys = np.where(enough, key, FAR)
        position = keys.argmin()
        if not enough[position]:
            return _several(holds, key, count)
    return np.array([position]), np.array([count])


def evenly(holds: Ints, key: Ints, count: int) -> Chosen:
    """`count` tasks, at most `holds.sum()`, on as many positions as can be, none with two tasks more
    than another that could have had one; ties go to the emptiest, then to the first."""
    if count <= 0:
        return _NOTHING, _NOTHING
    level = _water_level(holds, count)
    each = np.minimum(holds, level)
    left = count - int(each.sum())
    more = np.flatnonzero(holds > level)
    each[more[np.argsort(-key[more], kind="stable")[:left]]] += 1
    positions = np.flatnonzero(each)
    return positions, each[positions]


def tightest_first(holds: Ints, key: Ints, count: int) -> Chosen:
    """Up to `count` tasks that need not be together: each position is filled before the next one."""
    if count <= 0:
        return _NOTHING, _NOTHING
    positions = np.flatnonzero(holds)
    if count < len(positions):  # each holds one at least, so that no more of them are needed
        positions = _least(positions, key, count)
    else:
        positions = positions[np.argsort(key[positions], kind="stable")]
    after = np.cumsum(holds[positions])
    used = int(np.searchsorted(after, count)) + 1
    positions = positions[:used]
    each = holds[positions]
    if len(positions) and after[len(positions) - 1] > count:
        each[-1] -= after[len(positions) - 1] - count
    return positions, each


_NOTHING: Ints = np.empty(0, dtype=np.int64)


def _several(holds: Ints, key: Ints, count: int) -> Chosen:
    """No single position holds all."""
    number = np.bincount(holds)  # how many positions hold exactly so many
    values = np.flatnonzero(number)[::-1]
    number = number[values]
    filled = np.cumsum(number * values)
    last = int(np.searchsorted(filled, count))  # positions of `values[last]` bring the sum to `count`
    value = int(values[last])
    before = int(filled[last - 1]) if last else 0
    full = (count - before - 1) // value  # so many of them are filled, and the rest fits on one
    rest = count - before - full * value
    positions = np.flatnonzero(holds > value)
    if full:
        equal = np.flatnonzero(holds == value)
        positions = np.concatenate((positions, _least(equal, key, full)))
    keys = np.where(holds >= rest, key, FAR)
    keys[positions] = FAR
    end = keys.argmin()
    return np.append(positions, end), np.append(holds[positions], rest)


def _least(positions: Ints, key: Ints, count: int) -> Ints:
    """The `count` positions with the least keys, in that order; ties to the first."""
    if count >= len(positions):
        return positions[np.argsort(key[positions], kind="stable")]
    keys = key[positions]
    bound = np.partition(keys, count - 1)[count - 1]
    below = np.flatnonzero(keys < bound)
    at = np.flatnonzero(keys == bound)[: count - len(below)]
    below = below[np.argsort(keys[below], kind="stable")]
    return positions[np.concatenate((below, at))]


def _water_level(holds: Ints, count: int) -> int:
    """The highest level at which `np.minimum(holds, level).sum() <= count`."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(holds, middle).sum()) <= count:
            low = middle
        else:
            high = middle - 1
    return low
