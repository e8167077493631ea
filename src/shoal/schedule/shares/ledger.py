"""What each queue uses, kept up to date while work is given out, and whether it may have so much more.

Answers take time in proportion to the depth of the tree. Numbers are plain floats in lists: for a
handful of resources that is several times faster than arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.quotas import Quotas

__all__ = ["CLUSTER", "Ledger", "Refusal"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CLUSTER = -1
"""Stands for the level above all queues in `Refusal.queue`."""

_EXACT = float(1 << 53)
"""Whole numbers below are told apart from their neighbours."""
_NEXT_TO_NOTHING = 1e-9
_SLACK = 1e-9
"""Relative: so much above a bound is rounding."""


@dataclass(frozen=True)
class Refusal:
    """The first rule that stands in the way, from the queue upwards, and its numbers."""

    rule: str
    """Limit, Borrowing, Kept (for siblings, lent to nobody), Capacity; those of `laws` besides."""
    queue: int
    """The level of the tree at which it holds: a queue on the path, or CLUSTER."""
    resource: int = -1
    bound: float = 0.0
    used: float = 0.0
    """Counted against the bound now, as the rule counts."""
    asked: float = 0.0


class Ledger:
    """Mutable. `used` (q, r): what the jobs of each queue itself hold; `capacity` (r,), inf allowed."""

    def __init__(self, rules: Quotas, used: Floats, capacity: Floats) -> None:
        self.rules = rules
        self.capacity: list[float] = capacity.astype(np.float64).tolist()
        self.bounded = [k for k, most in enumerate(self.capacity) if most not in (0.0, float("inf"))]
        """The resources of which shares can be told."""
        tree = rules.tree
        claimed = used.astype(np.float64)
        inside = claimed.copy()
        for level in reversed(tree.levels):
            claimed[level] = np.maximum(rules.kept[level], inside[level])
            above = tree.parent[level]
            below_others = above >= 0
            np.add.at(inside, above[below_others], claimed[level][below_others])
        self.use: list[list[float]] = tree.sums(used).tolist()
        """Per queue, those below it included."""
        self._inside: list[list[float]] = inside.tolist()
        self._claimed: list[list[float]] = claimed.tolist()
        self._total: list[float] = claimed[tree.members[-1]].sum(axis=0).tolist()
        self._in_use: list[float] = used.sum(axis=0).tolist()
        self.weight = _weights(rules.weight)
        """Per queue, as a part of the largest; what is next to nothing stands for 0."""
        self.weightless: list[bool] = (rules.weight == 0).tolist()
        self.fenced: list[bool] = rules.fenced.tolist()
        self.priority: list[int] = rules.priority.tolist()
        self.kept: list[list[float]] = rules.kept.tolist()
        self.keeps = bool((rules.kept > 0).any())
        """Whether anything is kept for a queue that lends it to nobody."""
        self.nominal: list[list[float]] = rules.nominal.tolist()
        self._ceiling: list[list[float]] = rules.ceiling.tolist()
        bounds = np.vstack((self.capacity, rules.ceiling))
        largest = np.where(np.isfinite(bounds), np.abs(bounds), 0.0).max(axis=0)
        self._slack: Floats = 2 * _SLACK * np.maximum(1.0, largest)
        self._limit: list[list[float]] = rules.limit.tolist()

    def copy(self) -> Ledger:
        """One to try things on."""
        twin = object.__new__(Ledger)
        twin.__dict__.update(self.__dict__)
        twin.use = [list(row) for row in self.use]
        twin._inside = [list(row) for row in self._inside]
        twin._claimed = [list(row) for row in self._claimed]
        twin._total = list(self._total)
        twin._in_use = list(self._in_use)
        return twin

    def charge(self, queue: int, amounts: Sequence[float], sign: int = 1) -> None:
        """Count these amounts (r,) more (or less, with -1) as used by the queue's own jobs."""
        for resource, amount in enumerate(amounts):
            if not amount:
                continue
            more = sign * amount
            for node in self.rules.tree.paths[queue]:
                self.use[node][resource] += sign * amount
                inside = self._inside[node][resource] + more
                claimed = max(self.kept[node][resource], inside)
                more = claimed - self._claimed[node][resource]
                self._inside[node][resource] = inside
                self._claimed[node][resource] = claimed
            self._total[resource] += more
            self._in_use[resource] += sign * amount

    def allows(self, queue: int, ask: Sequence[float]) -> bool:
        """Whether `refusal` has nothing to say, which takes a part of the time."""
        path = self.rules.tree.paths[queue]
        insides, ceilings, kepts, claims = self._inside, self._ceiling, self.kept, self._claimed
        for resource, amount in enumerate(ask):
            if not amount:
                continue
            more = amount
            for node in path:
                inside = insides[node][resource] + more
                bound = ceilings[node][resource]
                if inside > bound and _above(inside, bound):
                    return False
                kept = kepts[node][resource]
                # `max` takes longer, and this is asked most of all
                more = (inside if inside > kept else kept) - claims[node][resource]
                if more <= 0:
                    break
            else:
                bound, total = self.capacity[resource], self._total[resource] + more
                if total > bound and _above(total, bound):
                    return False
        return True

    def times(self, queue: int, ask: Sequence[float], most: int) -> int:
        """How often in a row `allows` says yes, and the ask is charged, up to `most`. Found at once
        where all of these are whole numbers, which add up alike in any order; else no more than
        once."""
        low, high = 0, most if self._adds_up(queue, ask, most) else min(most, 1)
        while low < high:
            middle = (low + high + 1) // 2
            if self.allows(queue, [middle * amount for amount in ask]):
                low = middle
            else:
                high = middle - 1
        return low

    def _adds_up(self, queue: int, ask: Sequence[float], times: int) -> bool:
        """Whether so many of them, and what is counted on the queue's path of what they ask for, are
        whole numbers, none too large to be exact."""
        asked = [at for at, amount in enumerate(ask) if amount]
        levels = [
            row[node]
            for node in self.rules.tree.paths[queue]
            for row in (self.use, self._inside, self._claimed, self.kept)
        ]
        counted = [row[at] for row in (self._total, self._in_use, *levels) for at in asked]
        most = times * max(ask, default=0.0)
        return all(each.is_integer() and each + most < _EXACT for each in (*ask, *counted))

    def refusal(self, queue: int, ask: Sequence[float]) -> Refusal | None:
        """Why the queue may not have so much more (r,); None if it may."""
        found: Refusal | None = None
        found_at = len(self.rules.tree.paths[queue]) + 1
        for resource, amount in enumerate(ask):
            if not amount:
                continue
            for height, denied in self._denied(queue, resource, amount):
                if height < found_at:
                    found, found_at = denied, height
                break
        return found

    def refusals(self, queue: int, ask: Sequence[float]) -> list[Refusal]:
        """All that stands in the way, one rule for each level and resource, the lowest level first;
        `refusal` is the first of them."""
        found: dict[tuple[int, int], Refusal] = {}
        for resource, amount in enumerate(ask):
            for height, denied in self._denied(queue, resource, amount) if amount else ():
                found.setdefault((height, resource), denied)
        return [found[key] for key in sorted(found)]

    def headroom(self, queue: int) -> list[float]:
        """(r,): how much more the queue may have of each resource; `refusal` agrees."""
        left = [bound - total for bound, total in zip(self.capacity, self._total, strict=True)]
        for node in reversed(self.rules.tree.paths[queue]):
            rows = zip(self._ceiling[node], self._inside[node], self._claimed[node], left, strict=True)
            left = [
                max(0.0, min(ceiling - inside, max(0.0, free) + claimed - inside))
                for ceiling, inside, claimed, free in rows
            ]
        return left

    def leaves_kept(self, queue: int, amounts: Sequence[float]) -> bool:
        """Whether it can give up so much (r,), and it and those above it still use what is kept for
        them."""
        for node in self.rules.tree.paths[queue]:
            for amount, used, kept in zip(amounts, self.use[node], self.kept[node], strict=True):
                if amount > 0 and used - amount < kept:
                    return False
        return True

    def hopeful(self, queues: Ints, asks: Floats) -> Bools:
        """(w,): which asks (w, r) of these `queues` (w,) might be allowed; the others certainly are not,
        and are not while nothing is given back."""
        fine = (asks <= 0) | (asks <= self._headrooms()[queues] + self._slack)
        return np.asarray(fine.all(axis=1))

    def _headrooms(self) -> Floats:
        """(q, r): `headroom` of all queues."""
        rules, inside, claimed = self.rules, np.array(self._inside), np.array(self._claimed)
        left, whole = np.empty_like(inside), np.array(self.capacity) - np.array(self._total)
        for level in rules.tree.levels:
            above = rules.tree.parent[level][:, None]
            free = np.maximum(0.0, np.where(above < 0, whole, left[above[:, 0]]))
            lent = free + claimed[level] - inside[level]
            left[level] = np.maximum(0.0, np.minimum(rules.ceiling[level] - inside[level], lent))
        return left

    def tasks(self, queue: int, need: Sequence[float], most: int) -> int:
        """How many tasks of this need (r,) the queue may have, at most `most`."""
        for amount, room in zip(need, self.headroom(queue), strict=True):
            if amount > 0 and room < amount * most:
                most = int(room / amount + _SLACK)
        return most

    def _denied(self, queue: int, resource: int, amount: float) -> list[tuple[int, Refusal]]:
        """What forbids it, lowest level first, with the height."""
        found: list[tuple[int, Refusal]] = []
        more = amount
        path = self.rules.tree.paths[queue]
        for height, node in enumerate(path):
            inside, bound = self._inside[node][resource], self._ceiling[node][resource]
            reached = inside + more
            if reached > bound and _above(reached, bound):
                used = self.use[node][resource]
                if not _above(used + amount, bound):
                    found.append((height, Refusal("Kept", node, resource, bound, inside, amount)))
                rule = "Limit" if _above(used + amount, self._limit[node][resource]) else "Borrowing"
                found.append((height, Refusal(rule, node, resource, bound, used, amount)))
            kept = self.kept[node][resource]
            more = (reached if reached > kept else kept) - self._claimed[node][resource]
            if more <= 0:
                return found
        bound, total = self.capacity[resource], self._total[resource]
        if total + more > bound and _above(total + more, bound):
            used = self._in_use[resource]
            if _above(used + amount, bound):
                found.append((len(path), Refusal("Capacity", CLUSTER, resource, bound, used, amount)))
            found.append((len(path), Refusal("Kept", CLUSTER, resource, bound, total, amount)))
        return found


def _weights(weight: Floats) -> list[float]:
    largest = weight.max(initial=0.0) or 1.0
    least = weight[weight > 0].min(initial=largest) / largest
    return np.where(weight > 0, weight / largest, least * _NEXT_TO_NOTHING).tolist()


def _above(value: float, bound: float) -> bool:
    return value > bound + _SLACK * max(1.0, abs(bound) if bound != float("inf") else 1.0)
