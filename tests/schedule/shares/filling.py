"""Progressive filling over a tree: all rise together, until their wish or somebody's room ends.

Every queue that wants something rises at the speed of its weight: its *level* is the sum of the
dominant shares of what it was given so far, over its weight (Ghodsi et al. 2011, section 4). Siblings
that are still rising are at the same level. A queue with children gives what it gets to them by the
same rule, and rises by the dominant share of what they take together, whichever resource that is at
the moment; so a subtree whose children want different things pays for each in turn, and nothing is
left idle that somebody may still use (the starvation of plain hierarchical fill, Bhattacharya et al.
2013).

What a subtree has taken at a level is a broken line (`lines`), and the lines of siblings add up, so
filling needs no small steps: from bottom to top one line per queue with children, on the lines the
first place where some room is full, from top to bottom everybody's amounts there. Whoever needs what
is full stops; the others go on. There are as many rounds as rooms that become full one after the
other in the same subtree, plus one: subtrees whose common room is large enough for all of them do not
wait for each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.tree import Tree
from tests.schedule.shares.lines import Line, Rising, rising_lines

__all__ = ["fill"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_ROUNDING = 1e-12
"""Of the cluster: less room than that is none."""
_NOBODY = -2


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
    # column by column in memory: then the largest of a row costs a fourth
    spare = np.asfortranarray(np.maximum(np.vstack((room, capacity[None, :])) / scale, 0.0))
    left = _clipped(np.asfortranarray(np.where(tree.leaf[:, None], wish, 0.0) / scale), spare[:-1])
    given = np.zeros_like(left)
    rising = tree.leaf & (left > 0).any(axis=1) & _weighted(tree, weight)
    rising &= ~_stopped(tree, left, spare)
    rank = np.zeros(len(weight), dtype=np.int64) if priority is None else priority
    for _ in range(spare.size + 1):
        if not rising.any():
            break
        wanted = np.where(rising[:, None], left, 0.0)
        head = _heads(tree, wanted, spare)
        found = rising_lines(tree, wanted, weight, rank, bounded, head != _NOBODY)
        part = _parts(tree, found, head, _first_full(tree, found, head, spare))
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


def _heads(tree: Tree, left: Floats, spare: Floats) -> Ints:
    """(q + 1), the cluster last: the topmost queue above each, or itself, that can run out of room.

    Where a room is large enough for all below it, those below do not meet: each of them rises for
    itself, and as far as it can in one round. `_NOBODY` where nothing can run out at all.
    """
    count = len(left)
    wants = left.copy(order="F")
    for level in reversed(tree.levels[1:]):
        np.add.at(wants, tree.parent[level], np.minimum(wants[level], spare[level]))
    short = np.zeros(count + 1, dtype=np.bool_)
    short[:-1] = (wants > spare[:-1] + _ROUNDING).any(axis=1)
    top = tree.members[-1]
    short[-1] = (np.minimum(wants[top], spare[top]).sum(axis=0) > spare[-1] + _ROUNDING).any()
    head = np.full(count + 1, _NOBODY, dtype=np.int64)
    if short[-1]:
        head[:] = -1
        return head
    for level in tree.levels:
        above = head[tree.parent[level]]
        head[level] = np.where(above != _NOBODY, above, np.where(short[level], level, _NOBODY))
    return head


def _first_full(tree: Tree, found: Rising, head: Ints, spare: Floats) -> dict[int, float]:
    """Per head its level at which the first room at it or below it is full; absent if none will be."""
    first: dict[int, float] = {}
    for queue, line in found.lines.items():
        full = spare[queue] + _ROUNDING
        if (line.taken[-1] <= full).all():
            continue
        at = int(np.argmax((line.taken > full).any(axis=1)))
        over = line.taken[at] > full
        before = line.taken[at - 1][over]
        ahead: Floats = (spare[queue][over] - before) / line.slope[at - 1][over]
        level = float(line.own[at - 1]) + max(0.0, float(ahead.min()))
        top = int(head[queue])
        first[top] = min(first.get(top, np.inf), _at_head(tree, found, top, queue, level))
    return first


def _at_head(tree: Tree, found: Rising, head: int, queue: int, level: float) -> float:
    """The level of the head at which the queue has reached this level of its own."""
    while queue != head:
        above = int(tree.parent[queue])
        line: Line = found.lines[above]
        level = float(np.interp(float(found.starts[queue]) + level, line.rise, line.own))
        queue = above
    return level


def _parts(tree: Tree, found: Rising, head: Ints, at: dict[int, float]) -> Floats:
    """(q,): the part of its wish that each has when every head has risen to its level in `at`."""
    part = np.ones(len(found.ends))
    reached = np.full(len(found.ends), np.inf)
    for queue in (-1, *reversed(tree.bottom_up)):
        line = found.lines.get(queue)
        if line is None:
            continue
        own = at.get(queue, np.inf) if queue == head[queue] else float(reached[queue])
        rise = np.inf if own >= line.own[-1] else float(np.interp(own, line.own, line.rise))
        inside = tree.members[queue]
        reached[inside] = np.maximum(rise - found.starts[inside], 0.0)
    np.divide(reached, found.ends, out=part, where=found.ends > 0)
    return np.clip(part, 0.0, 1.0)
