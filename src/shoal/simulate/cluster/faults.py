"""Nodes that are lost and come back, as chance has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.objects.meta import Stamp

__all__ = ["Faults"]


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Each node is lost after a time that is exponentially distributed, and back after another."""

    mean_seconds: float
    """Between the losses of one node."""
    repair_seconds: float
    """Mean of the time to its return."""
    seed: int = 0

    def times(self, nodes: Sequence[str]) -> Iterator[tuple[Stamp, str, Stamp]]:
        """When which node is lost and when it is back, in the order of losses, without end."""
        chance = np.random.default_rng(self.seed)
        after = chance.exponential(self.mean_seconds, len(nodes))
        while True:
            which = int(after.argmin())
            lost = float(after[which])
            back = lost + float(chance.exponential(self.repair_seconds))
            yield lost, nodes[which], back
            after[which] = back + chance.exponential(self.mean_seconds)
