"""The tree of queues: who is above whom, sums over what lies below, and where two paths meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tree", "tree"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """Of `q` queues, made by `tree`. Above the topmost queues stands the cluster, which is no queue."""

    parent: Ints
    """(q,), -1 at the top."""
    depth: Ints
    """(q,), 0 at the top."""
    leaf: NDArray[np.bool_]
    """(q,): has no queue below it."""
    paths: tuple[tuple[int, ...], ...]
    """Per queue: itself, its parent and so on up to the top."""
    members: tuple[Ints, ...]
    """(q + 1): the children of each queue in ascending order; last those at the top."""
    bottom_up: tuple[int, ...]
    """The queues that have children, each before its parent."""
    levels: tuple[Ints, ...]
    """The queues of each depth in ascending order, the topmost first."""
    _forks: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = field(
        default_factory=dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]],
        repr=False,
        compare=False,
    )

    def sums(self, values: Floats) -> Floats:
        """(q, r): what is stated for each queue and all below it, of `values` (q, r)."""
        total = values.astype(np.float64)
        for level in reversed(self.levels[1:]):
            np.add.at(total, self.parent[level], total[level])
        return total

    def fork(self, one: int, other: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The two paths up to, and without, the queue in which they meet.

        The last of each path are siblings, and they are what is compared when one queue asks for what
        the other holds. A path is empty where its queue lies above the other, or is the same.
        """
        found = self._forks.get((one, other))
        if found is None:
            mine, theirs = self.paths[one], self.paths[other]
            common = 0
            for a, b in zip(reversed(mine), reversed(theirs), strict=False):
                if a != b:
                    break
                common += 1
            found = self._forks[one, other] = mine[: len(mine) - common], theirs[: len(theirs) - common]
        return found


def tree(parents: Sequence[int] | Ints) -> Tree:
    """From the index of each queue's parent, (q,), -1 at the top.

    Raises ValueError for an index that is no queue, and for queues that are above themselves, which it
    names by their indices.
    """
    parent = np.asarray(parents, dtype=np.int64).reshape(-1)
    count = len(parent)
    wrong = np.flatnonzero((parent < -1) | (parent >= count))
    if len(wrong):
        raise ValueError(
            f"queue {wrong[0]} has parent {parent[wrong[0]]}, which is none of {count} queues"
        )
    depth = _depths(parent)
    levels = tuple(np.flatnonzero(depth == at) for at in range(int(depth.max(initial=-1)) + 1))
    leaf = np.ones(count, dtype=np.bool_)
    leaf[parent[parent >= 0]] = False
    inner = np.flatnonzero(~leaf)
    deepest_first = inner[np.argsort(-depth[inner], kind="stable")]
    return Tree(
        parent=parent,
        depth=depth,
        leaf=leaf,
        paths=_paths(parent, levels),
        members=_members(parent),
        bottom_up=tuple(deepest_first.tolist()),
        levels=levels,
    )


def _depths(parent: Ints) -> Ints:
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent.copy()
    for _ in range(len(parent)):
        going = above >= 0
        if not going.any():
            return depth
        depth[going] += 1
        above[going] = parent[above[going]]
    if (above >= 0).any():
        # whoever has walked so many steps walks in a circle, and stands on it
        circle = [int(above[above >= 0][0])]
        while (after := int(parent[circle[-1]])) != circle[0]:
            circle.append(after)
        first = circle.index(min(circle))
        circle = circle[first:] + circle[:first]
        raise ValueError(f"queues are above themselves: {' -> '.join(map(str, [*circle, circle[0]]))}")
    return depth


def _paths(parent: Ints, levels: tuple[Ints, ...]) -> tuple[tuple[int, ...], ...]:
    above: list[int] = parent.tolist()
    paths: list[tuple[int, ...]] = [()] * len(above)
    for level in levels:
        for queue in level.tolist():
            paths[queue] = (queue, *paths[above[queue]]) if above[queue] >= 0 else (queue,)
    return tuple(paths)


def _members(parent: Ints) -> tuple[Ints, ...]:
    """By one sort: children of queue 0, of queue 1, ..., of the cluster."""
    owner = np.where(parent < 0, len(parent), parent)
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(len(parent) + 2))
    return tuple(order[bounds[at] : bounds[at + 1]] for at in range(len(parent) + 1))
