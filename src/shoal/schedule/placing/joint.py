"""Which domains have too little in all for several groups together, before any is tried.

Each group may fit alone where both do not. Sums over a domain tell the hopeless ones apart at the price
of a few passes over the nodes; what they let through can still fail, node by node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import WHOLE, Domain, Group
from shoal.schedule.placing.room import Room

__all__ = ["Joint"]


class Joint:
    """What `counts` tasks of the groups need together, against what the domains have now."""

    def __init__(self, room: Room, groups: Sequence[Group], counts: Sequence[int]) -> None:
        shapes = [group.shape for group in groups]
        asked = [(*shape.ask, shape.gpus * WHOLE, shape.slots * shape.thousandths) for shape in shapes]
        self._need = np.array(counts, dtype=np.float64) @ np.array(asked, dtype=np.float64)
        self._room = room
        self._levels: dict[int, NDArray[np.float64]] = {}

    def could(self, scope: Domain | None) -> bool:
        """False: for certain not all of it fits there."""
        level = -1 if scope is None else scope.level
        found = self._levels.get(level)
        if found is None:
            found = self._levels[level] = self._sums(level)
        left = found[0 if scope is None else scope.index]
        # memory in bytes of a whole cluster is beyond what a float counts exactly
        return bool(((left >= self._need * (1 - 1e-9)) | (self._need == 0)).all())

    def _sums(self, level: int) -> NDArray[np.float64]:
        """(d, r + 2): of each domain, what is free of each resource, of idle GPUs, and of all GPUs."""
        room = self._room
        columns: list[NDArray[np.signedinteger[Any]]] = [
            *np.maximum(room.free, 0).T,
            room.idle * WHOLE,
            np.maximum(room.slots, 0).sum(axis=1),
        ]
        if level < 0:
            return np.array([[column.sum(dtype=np.float64) for column in columns]])
        row, size = room.topology.domain[level], room.topology.sizes[level]
        row = np.where(row >= 0, row, size)
        sums = np.empty((size + 1, len(columns)))
        for at, column in enumerate(columns):
            sums[:, at] = np.bincount(row, column, size + 1)
        return sums
