"""What one user may have in a queue and all below it, so that no one fills it alone.

Caps of the queues themselves are their limits, see `quotas`; a number of jobs is one more resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.ledger import Refusal
from shoal.schedule.shares.tree import Tree

__all__ = ["UserCaps"]

Floats = NDArray[np.float64]

_SLACK = 1e-9


class UserCaps:
    """Mutable: `charge` what is held, then what is given out. `most` (q, r): per user, inf where free.

    Raises ValueError for a cap that is no amount.
    """

    def __init__(self, tree: Tree, most: Floats) -> None:
        if np.isnan(most).any() or (most < 0).any():
            raise ValueError("a user's cap is an amount from 0 up for each queue and resource")
        self._tree = tree
        self._most: list[list[float]] = most.tolist()
        self._capped = [bool(row.any()) for row in np.isfinite(most)]
        self.capped = any(self._capped)
        """Whether there is any cap."""
        self._used: dict[tuple[int, str], list[float]] = {}

    def charge(self, queue: int, user: str, amounts: Sequence[float], sign: int = 1) -> None:
        """Count these amounts (r,) more (or less, with -1) as used by the user's jobs in the queue."""
        for node in self._tree.paths[queue]:
            if self._capped[node]:
                used = self._used.setdefault((node, user), [0.0] * len(amounts))
                for resource, amount in enumerate(amounts):
                    used[resource] += sign * amount

    def refusal(self, queue: int, user: str, ask: Sequence[float]) -> Refusal | None:
        """Which cap the user's jobs would exceed with so much more (r,), the lowest level first."""
        return next(self.refusals(queue, user, ask), None) if self.capped else None

    def refusals(self, queue: int, user: str, ask: Sequence[float]) -> Iterator[Refusal]:
        """All of them."""
        for node in self._tree.paths[queue]:
            if not self._capped[node]:
                continue
            used = self._used.get((node, user), [0.0] * len(ask))
            for resource, amount in enumerate(ask):
                most = self._most[node][resource]
                if amount > 0 and used[resource] + amount > most + _SLACK * max(1.0, min(most, 1e18)):
                    yield Refusal("UserCap", node, resource, most, used[resource], amount)
