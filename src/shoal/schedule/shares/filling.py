"""Progressive filling over a tree: all rise together, until their wish or somebody's room ends.

Every queue that wants something rises at the speed of its weight: its *level* is the sum of the dominant
shares of what it was given so far, over its weight (Ghodsi et al. 2011, section 4). Siblings that are
still rising are at the same level. A queue with children gives what it gets to them by the same rule, and
rises by the dominant share of what they take together, whichever resource that is at the moment; so a
subtree whose children want different things pays for each in turn, and nothing is left idle that
somebody may still use (the starvation of plain hierarchical fill, Bhattacharya et al. 2013).

What a subtree has taken at a level is a broken line, and the lines of siblings add up, so filling needs
no small steps: from bottom to top one line per queue with children, on the lines the first place where
some room is full, from top to bottom everybody's amounts there. Whoever needs what is full stops; the
others go on. There are as many rounds as there are rooms that become full, plus one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.tree import Tree

__all__ = ["fill"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_ROUNDING = 1e-12
"""Of the cluster: less room than that is none."""
_TRIFLE = 1e-6
"""The dominant share of wishes that no capacity bounds; above 0, so that they take turns too."""


@dataclass
class _Line:
    """What the children of a queue take together while they rise."""

    rise: Floats
    """(b,): their common level at each bend, from 0."""
    own: Floats
    """(b,): the level of the queue itself there, in its own siblings' measure."""
    taken: Floats
    """(b, r): shares of the cluster."""
    slope: Floats
    """(b, r): by which `taken` grows with `own` after each bend, 0 after the last."""


def fill(
    tree: Tree,
    wish: Floats,
    weight: Floats,
    room: Floats,
    capacity: Floats,
    priority: Ints | None = None,
) -> Floats:
    """Amounts (q, r) of every queue, those of its children included.

    `wish` (q, r) of a leaf is served in proportion, all its resources alike; wishes of queues with
    children do not count. `weight` (q,): 0 gets nothing. `room` (q, r): the most that a queue and all
    below it may have, inf allowed. `capacity` (r,), inf for what is no share of anything. Of siblings
    with different `priority` (q,) the higher come first, whatever the weights.
    Nobody's wish is exceeded, and a leaf stops only at its wish or at room that is full.
    """
    bounded = np.isfinite(capacity)
    scale = np.where(bounded & (capacity > 0), capacity, 1.0)
    spare = np.maximum(np.vstack((room, capacity[None, :])) / scale, 0.0)
    left = _clipped(np.where(tree.leaf[:, None], wish, 0.0) / scale, spare[:-1])
    given = np.zeros_like(left)
    rising = tree.leaf & (left > 0).any(axis=1) & _weighted(tree, weight)
    rising &= ~_stopped(tree, left, spare)
    rank = np.zeros(len(weight), dtype=np.int64) if priority is None else priority
    for _ in range(spare.size + 1):
        if not rising.any():
            break
        lines, ends, starts = _lines(tree, np.where(rising[:, None], left, 0.0), weight, rank, bounded)
        at = _first_full(tree, lines, starts, spare)
        part = _parts(tree, lines, ends, starts, at)
        step = np.where(rising, part, 0.0)[:, None] * left
        given += step
        left -= step
        total = tree.sums(step)
        spare[:-1] -= total
        spare[-1] -= step[tree.leaf].sum(axis=0)
        rising &= part < 1.0
        rising &= ~_stopped(tree, left, spare)
    return tree.sums(given * scale)


def _clipped(wish: Floats, room: Floats) -> Floats:
    """The part of each wish that its own room allows."""
    part = np.full_like(wish, np.inf)
    np.divide(room, wish, out=part, where=wish > 0)
    return wish * np.minimum(part.min(axis=1, initial=1.0), 1.0)[:, None]


def _weighted(tree: Tree, weight: Floats) -> Bools:
    """(q,): no weight of 0 from there to the top."""
    counts = weight > 0
    for level in tree.levels[1:]:
        counts[level] &= counts[tree.parent[level]]
    return counts


def _stopped(tree: Tree, left: Floats, spare: Floats) -> Bools:
    """(q,): wants what is full, in its own room or in any above it."""
    full = spare <= _ROUNDING
    blocked = full[:-1] | full[-1]
    for level in tree.levels[1:]:
        blocked[level] |= blocked[tree.parent[level]]
    return ((left > 0) & blocked).any(axis=1)


def _lines(
    tree: Tree, left: Floats, weight: Floats, rank: Ints, bounded: Bools
) -> tuple[dict[int, _Line], Floats, Floats]:
    """The line of each queue with children, and of the cluster (under -1); per queue the level at which
    it has all it wants, and the one of its siblings at which it begins to rise."""
    count = len(weight)
    dominant = np.where(bounded, left, 0.0).max(axis=1)
    nothing = (left > 0).any(axis=1) & (dominant <= 0)
    dominant[nothing] = _TRIFLE
    ends = np.zeros(count)
    np.divide(dominant, weight, out=ends, where=weight > 0)
    starts = np.zeros(count)
    slopes = np.zeros_like(left)
    np.divide(left, ends[:, None], out=slopes, where=ends[:, None] > 0)
    lines: dict[int, _Line] = {}
    tiers = bool(rank.any())
    for queue in (*tree.bottom_up, -1):
        inside = tree.members[queue]
        inside = inside[(ends[inside] > 0)]
        if not len(inside):
            continue
        if tiers:
            starts[inside] = _offsets(rank[inside], ends[inside])
        mine = weight[queue] if queue >= 0 else 1.0
        line = _sum(tree, inside, lines, ends, starts, slopes, mine, bounded)
        lines[queue] = line
        if queue >= 0:
            ends[queue] = line.own[-1]
    return lines, ends, starts


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
    lines: dict[int, _Line],
    ends: Floats,
    starts: Floats,
    slopes: Floats,
    weight: float,
    bounded: Bools,
) -> _Line:
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
    return _Line(rise, own, taken, slope)


def _merged(bends: Floats, turns: Floats) -> tuple[Floats, Floats]:
    """In ascending order, from 0, equal bends as one."""
    order = np.argsort(bends, kind="stable")
    bends, turns = bends[order], turns[order]
    fresh = np.concatenate(([True], bends[1:] > bends[:-1]))
    if fresh.all():
        return bends, turns
    return bends[fresh], np.add.reduceat(turns, np.flatnonzero(fresh), axis=0)


def _first_full(tree: Tree, lines: dict[int, _Line], starts: Floats, spare: Floats) -> float:
    """The level of the cluster at which the first room is full; inf if none will be."""
    first = np.inf
    for queue, line in lines.items():
        full = spare[queue] + _ROUNDING
        if (line.taken[-1] <= full).all():
            continue
        at = int(np.argmax((line.taken > full).any(axis=1)))
        over = line.taken[at] > full
        before = line.taken[at - 1][over]
        ahead = (spare[queue][over] - before) / line.slope[at - 1][over]
        level = line.own[at - 1] + max(0.0, float(ahead.min()))
        first = min(first, _at_top(tree, lines, starts, queue, float(level)))
    return first


def _at_top(tree: Tree, lines: dict[int, _Line], starts: Floats, queue: int, level: float) -> float:
    """The level of the cluster at which the queue has reached this level of its own."""
    while queue >= 0:
        above = int(tree.parent[queue])
        line = lines[above]
        level = float(np.interp(starts[queue] + level, line.rise, line.own))
        queue = above
    return level


def _parts(tree: Tree, lines: dict[int, _Line], ends: Floats, starts: Floats, at: float) -> Floats:
    """(q,): the part of its wish that each has when the cluster has risen to this level."""
    part = np.ones(len(ends))
    reached = np.full(len(ends), np.inf)
    for queue in (-1, *reversed(tree.bottom_up)):
        line = lines.get(queue)
        if line is None:
            continue
        own = at if queue < 0 else float(reached[queue])
        rise = np.inf if own >= line.own[-1] else float(np.interp(own, line.own, line.rise))
        inside = tree.members[queue]
        reached[inside] = np.maximum(rise - starts[inside], 0.0)
    some = ends > 0
    np.divide(reached, ends, out=part, where=some)
    return np.clip(part, 0.0, 1.0)
