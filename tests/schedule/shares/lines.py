"""What a subtree of queues takes while it rises: broken lines that add up.

The line of a queue is the sum of those of its children, which rise together; its own level grows by the
dominant share of what they take at that moment, over its weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.tree import Tree

__all__ = ["Line", "Rising", "rising_lines"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_TRIFLE = 1e-6
"""The dominant share of wishes that no capacity bounds; above 0, so that they take turns too."""


@dataclass(frozen=True)
class Line:
    """What the children of a queue take together while they rise."""

    rise: Floats
    """(b,): their common level at each bend, from 0."""
    own: Floats
    """(b,): the level of the queue itself there, in its own siblings' measure."""
    taken: Floats
    """(b, r): shares of the cluster."""
    slope: Floats
    """(b, r): by which `taken` grows with `own` after each bend, 0 after the last."""


@dataclass(frozen=True)
class Rising:
    """Of all queues at once."""

    lines: dict[int, Line]
    """Of each queue with children that rise; -1 is the cluster."""
    ends: Floats
    """(q,): the level at which a queue has all it wants, 0 where it does not rise."""
    starts: Floats
    """(q,): the level of its siblings at which it begins to rise."""


def rising_lines(
    tree: Tree, left: Floats, weight: Floats, rank: Ints, bounded: Bools, wanted: Bools
) -> Rising:
    """`left` (q, r): what each leaf that rises still wants, as shares of the cluster; `weight` (q,);
    `rank` (q,): priorities; `bounded` (r,): which resources make a share; `wanted` (q + 1): whose lines
    are asked for, the cluster's last. Below a queue that is wanted all are.
    """
    count = len(weight)
    dominant = np.where(bounded, left, 0.0).max(axis=1)
    nothing = (left > 0).any(axis=1) & (dominant <= 0)
    dominant[nothing] = _TRIFLE
    ends = np.zeros(count)
    np.divide(dominant, weight, out=ends, where=weight > 0)
    starts = np.zeros(count)
    slopes = np.zeros_like(left)
    np.divide(left, ends[:, None], out=slopes, where=ends[:, None] > 0)
    lines: dict[int, Line] = {}
    tiers = bool(rank.any())
    for queue in (*tree.bottom_up, -1):
        inside = tree.members[queue]
        inside = inside[ends[inside] > 0]
        if not wanted[queue] or not len(inside):
            continue
        if tiers:
            starts[inside] = _offsets(rank[inside], ends[inside])
        mine = weight[queue] if queue >= 0 else 1.0
        line = _sum(tree, inside, lines, ends, starts, slopes, mine, bounded)
        lines[queue] = line
        if queue >= 0:
            ends[queue] = line.own[-1]
    return Rising(lines, ends, starts)


def _offsets(rank: Ints, ends: Floats) -> Floats:
    """Where each begins: after all of higher rank have what they want."""
    found = np.zeros(len(rank))
    behind = 0.0
    for value in np.unique(rank)[::-1]:
        tier = rank == value
        found[tier] = behind
        behind += float(ends[tier].max())
    return found


def _sum(
    tree: Tree,
    inside: Ints,
    lines: dict[int, Line],
    ends: Floats,
    starts: Floats,
    slopes: Floats,
    weight: float,
    bounded: Bools,
) -> Line:
    """The line of a queue whose rising children are `inside`."""
    leaves = inside[tree.leaf[inside]]
    first, last = starts[leaves], starts[leaves] + ends[leaves]
    steep = slopes[leaves]
    if first.any():
        bends, turns = [first, last], [steep, -steep]
    else:
        bends, turns = [np.zeros(1), last], [steep.sum(axis=0, keepdims=True), -steep]
    for child in inside[~tree.leaf[inside]].tolist():
        line = lines[child]
        bends.append(starts[child] + line.own)
        turns.append(np.diff(line.slope, axis=0, prepend=0.0))
    rise, turn = _merged(np.concatenate(bends), np.concatenate(turns))
    slope = np.maximum(np.cumsum(turn, axis=0), 0.0)
    slope[-1] = 0.0
    width = np.diff(rise)
    steepest = np.where(bounded, slope[:-1], 0.0).max(axis=1)
    steepest = np.maximum(steepest, _TRIFLE) / weight
    own = np.concatenate(([0.0], np.cumsum(steepest * width)))
    taken = np.vstack((np.zeros((1, slope.shape[1])), np.cumsum(slope[:-1] * width[:, None], axis=0)))
    slope[:-1] /= steepest[:, None]
    return Line(rise, own, taken, slope)


def _merged(bends: Floats, turns: Floats) -> tuple[Floats, Floats]:
    """In ascending order, from 0, equal bends as one."""
    order = np.argsort(bends, kind="stable")
    bends, turns = bends[order], np.asfortranarray(turns[order])
    fresh = np.concatenate(([True], bends[1:] > bends[:-1]))
    if fresh.all():
        return bends, turns
    return bends[fresh], np.add.reduceat(turns, np.flatnonzero(fresh), axis=0)
