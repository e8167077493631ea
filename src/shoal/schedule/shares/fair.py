"""The fair share of each queue now: first what is its own, then what others lend, by weight.

1. What is kept for a queue, as far as it wants it; what it does not want of that stays idle for it.
   Then what is kept for its parent alone, and so on upwards.
2. What is nominally its own.
3. What its siblings do not need of theirs, and what is stated for their parent alone, then the same one
   level up, and so on: lending stays in the family first.
4. What is left in the cluster, by weight; of siblings with different priority the higher first.

Each step is a progressive filling (`filling`) of what is still wanted in what is still there, so a
short cluster cuts every step's claims by the same rule instead of serving whoever comes first. What is a
queue's own is counted resource by resource, and in a short cluster all have the same part of theirs;
what is borrowed rises by dominant shares, all resources of a queue in proportion. For jobs whose tasks
need all their resources together, see `tasks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.filling import fill
from shoal.schedule.shares.quotas import Quotas
from shoal.schedule.shares.tree import Tree

__all__ = ["FairShares", "fair_shares"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FairShares:
    """All (q, r), in the unit of the capacity; a queue's numbers include those of its children."""

    deserved: Floats
    """The part of `fair` that is its own."""
    fair: Floats
    """What it wants, of its own and of what it may borrow by right."""
    idle: Floats
    """Kept for it, not wanted now, and lent to nobody."""


def fair_shares(rules: Quotas, demand: Floats, capacity: Floats) -> FairShares:
    """`demand` (q, r): all that the jobs of each leaf want, running ones included; what is stated for
    queues with children does not count. `capacity` (r,) of the cluster, inf for what it does not bound.

    Raises ValueError for numbers that are not amounts.
    """
    _check(demand, capacity)
    tree = rules.tree
    wish = np.minimum(np.where(tree.leaf[:, None], demand, 0.0), rules.ceiling)
    idle = _idle(tree, rules.kept, wish)
    filled = _Filling(rules, wish, idle, capacity)
    filled.claim(rules.kept, rules.ceiling)
    filled.kept_above()
    filled.withhold()
    filled.nominal(rules.ceiling)
    filled.add(wish, rules.ceiling, ranked=True)
    return FairShares(deserved=np.minimum(filled.given, rules.nominal), fair=filled.given, idle=idle)


class _Filling:
    """What was given so far, and what is left."""

    def __init__(self, rules: Quotas, wish: Floats, idle: Floats, capacity: Floats) -> None:
        self._rules = rules
        self._tree = rules.tree
        self._wish = wish
        self._left = capacity.astype(np.float64)
        self._idle = idle
        self.given = np.zeros_like(wish)

    def withhold(self) -> None:
        """From here on there is less by what stays idle."""
        self._left = np.maximum(self._left - self._idle[self._tree.members[-1]].sum(axis=0), 0.0)

    def kept_above(self) -> None:
        """What is kept for a queue with children and for none of them alone; their own goes first."""
        for room in self._families(self._rules.kept):
            self.nominal(room, apart=True)
            self.add(self._wish, room, apart=True)

    def nominal(self, room: Floats, *, apart: bool = False) -> None:
        """What is nominally the leaves' own, then what is their parents', within `room` (q, r)."""
        own = self._rules.nominal
        self.claim(own, room)
        for within in self._families(own):
            self.add(self._wish, np.minimum(within, room), apart=apart)

    def claim(self, own: Floats, room: Floats) -> None:
        """What each leaf has of its own, (q, r): where that is short, all get the same part of it."""
        self.add(np.minimum(self._wish, own), np.minimum(own, room), by_claim=True, apart=True)

    def _families(self, own: Floats) -> Iterator[Floats]:
        """Rooms (q, r), from the bottom up, where a level has more than its children have claimed.

        There and above everybody is held to its `own` (q, r), below to its ceiling.
        """
        for level in self._tree.levels[-2::-1]:
            inner = level[~self._tree.leaf[level]]
            if (own[inner] > (self.given + self._idle)[inner]).any():
                bound = (self._tree.depth <= self._tree.depth[inner[0]])[:, None]
                yield np.minimum(np.where(bound, own, np.inf), self._rules.ceiling)

    def add(
        self,
        wish: Floats,
        room: Floats,
        *,
        by_claim: bool = False,
        apart: bool = False,
        ranked: bool = False,
    ) -> None:
        """Fill up to the wish and the room, both counted from nothing; `apart`: each resource alone."""
        rest = np.maximum(wish - self.given, 0.0)
        rest[~self._tree.leaf] = 0.0
        space = np.maximum(room - self.given - self._idle, 0.0)
        wanted = np.flatnonzero(rest.any(axis=0))
        priority = self._rules.priority if ranked else None
        for some in wanted[:, None] if apart else [wanted] if len(wanted) else []:
            weight = self._tree.sums(rest[:, some])[:, 0] if by_claim else self._rules.weight
            more = fill(self._tree, rest[:, some], weight, space[:, some], self._left[some], priority)
            self.given[:, some] += more
            self._left[some] -= more[self._tree.members[-1]].sum(axis=0)
        self._left = np.maximum(self._left, 0.0)


def _idle(tree: Tree, kept: Floats, wish: Floats) -> Floats:
    """(q, r): what of `kept` nobody below wants; a parent's includes its children's."""
    claimed = np.where(tree.leaf[:, None], np.maximum(kept, wish), 0.0)
    for queue in tree.bottom_up:
        claimed[queue] = np.maximum(kept[queue], claimed[tree.members[queue]].sum(axis=0))
    return claimed - tree.sums(wish)


def _check(demand: Floats, capacity: Floats) -> None:
    if np.isnan(demand).any() or np.isinf(demand).any() or (demand < 0).any():
        raise ValueError("demand is a finite amount from 0 up for each queue and resource")
    if np.isnan(capacity).any() or (capacity < 0).any():
        raise ValueError("capacity is an amount from 0 up for each resource")
