"""A job that waits, the date that it was told, and the place that the date counts on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.future import taken
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.placing.asks import Ints, Placement

__all__ = ["Laid", "nodes_of"]


@dataclass(frozen=True)
class Laid:
    """One job, its date, and its place."""

    asked: Asked
    start: Stamp
    end: Stamp
    place: Placement
    wide: int
    """What is free on a node has so many columns (`future`)."""

    @cached_property
    def nodes(self) -> Ints:
        """Where that is, ascending."""
        return np.unique(np.concatenate([tasks.node for tasks in self.place]))

    @cached_property
    def on(self) -> frozenset[int]:
        """The same."""
        return frozenset(self.nodes.tolist())

    @cached_property
    def takes(self) -> Ints:
        """(m, w): what it takes on its nodes."""
        return taken(self.place, self.nodes, self.wide)


def nodes_of(some: Sequence[Laid]) -> Ints:
    """Where they are, ascending."""
    return np.unique(np.concatenate([each.nodes for each in some]))
