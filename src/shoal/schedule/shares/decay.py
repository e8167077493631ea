"""Use that is remembered, and forgotten by halves: who had much lately comes later for a while.

What was used counts half after one half-life, a quarter after two. For a constant rate the sum is known
in closed form, so it does not matter how often it is brought up to date:

    u(t + s) = u(t) 2^(-s/h) + rate h/ln 2 (1 - 2^(-s/h)).

The lean of a weight is the classic fair-share factor of Slurm's multifactor priority, 2^(-use/share):
use and share are parts of what all siblings used and may have, so where everybody used what is due
nobody gains on anybody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.tree import Tree

__all__ = ["Usage", "leaned", "nothing_used"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Usage:
    """What queues (or users) used, by a given time."""

    amounts: Floats
    """(q, r), each resource times seconds, what is forgotten left out."""
    at: float
    """Seconds since the epoch."""
    half_life_seconds: float
    """Above 0; inf forgets nothing."""

    def until(self, now: float, rate: Floats) -> Usage:
        """With `rate` (q, r) in use ever since; also for `now` before `at`, when nothing is added.

        Clocks of two schedulers may differ by a little: what is in the past already is not undone.
        """
        seconds = max(0.0, now - self.at)
        half_life = self.half_life_seconds
        if np.isinf(half_life):
            return Usage(self.amounts + rate * seconds, max(now, self.at), half_life)
        forgotten = -np.expm1(-np.log(2.0) * seconds / half_life)
        added = rate * (half_life / np.log(2.0) * forgotten)
        return Usage(self.amounts * (1.0 - forgotten) + added, max(now, self.at), half_life)


def nothing_used(shape: tuple[int, int], now: float, half_life_seconds: float) -> Usage:
    """The beginning. Raises ValueError for a half-life that is not above 0."""
    if not half_life_seconds > 0:
        raise ValueError(f"a half-life is above 0 seconds, not {half_life_seconds}")
    return Usage(np.zeros(shape), now, half_life_seconds)


def leaned(tree: Tree, weight: Floats, usage: Usage, capacity: Floats, strength: float = 1.0) -> Floats:
    """Weights (q,) of those who used more than their share lowered, against their siblings.

    `usage` of each queue itself; that of its children is added here. `capacity` (r,) says which resource
    is dominant. `strength` 0 leaves weights as they are. Siblings that used nothing keep theirs.
    """
    total = tree.sums(usage.amounts)
    bounded = np.isfinite(capacity) & (capacity > 0)
    used: Floats = np.divide(total, capacity, out=np.zeros_like(total), where=bounded[None, :]).max(
        axis=1
    )
    above = np.where(tree.parent < 0, len(weight), tree.parent)
    used_by_all = np.bincount(above, used, minlength=len(weight) + 1)[above]
    weight_of_all = np.bincount(above, weight, minlength=len(weight) + 1)[above]
    some = (used_by_all > 0) & (weight > 0)
    ratio = np.zeros(len(weight))
    np.divide(used * weight_of_all, used_by_all * weight, out=ratio, where=some)
    return weight * np.exp2(-strength * np.minimum(ratio, 1000.0 / max(strength, 1.0)))
