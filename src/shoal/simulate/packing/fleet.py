"""The nodes of a cluster while they fill up, each in one of the states that were seen so far.

States have numbers, so that what was worked out for one is known for every node that is ever in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.nodes import GPU, Nodes
from shoal.simulate.packing.states import Request, States

__all__ = ["Fleet", "Place"]


@dataclass(frozen=True)
class Place:
    """A node for a pod."""

    node: int
    """Index of the node."""
    free: int
    """Milli-GPUs free on the GPU that is to be taken, for a pod that wants a part of one."""


class Fleet:
    """Whose only change is `place`. For one thread."""

    def __init__(self, nodes: Nodes) -> None:
        slots = np.arange(int(nodes.gpus.max()))
        self._gpus = np.where(slots < nodes.gpus[:, None], GPU, 0)
        self._numbers: dict[bytes, int] = {}
        self._rows = np.empty((64, 3 + len(slots)), dtype=np.int64)
        begin = np.column_stack((nodes.kind, nodes.cpu, nodes.memory, np.sort(self._gpus, axis=1)))
        self._state = np.array([self._number(row) for row in begin], dtype=np.int64)

    @property
    def state(self) -> NDArray[np.int64]:
        """(n,): the number of each node's state. Not to be written to."""
        return self._state

    @property
    def gpus(self) -> NDArray[np.int64]:
        """(n, g): milli-GPUs free of each GPU, in the node's order. Not to be written to."""
        return self._gpus

    @property
    def seen(self) -> int:
        """How many states have numbers."""
        return len(self._numbers)

    def states(self, numbers: NDArray[np.int64]) -> States:
        """Those states (m,)."""
        rows = self._rows[numbers]
        return States(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3:])

    def place(self, place: Place, request: Request) -> tuple[int, ...]:
        """Put the pod there; which GPUs it has. Raises ValueError where it does not fit."""
        gpus = self._gpus[place.node]
        wanted = gpus == (place.free if request.shared else GPU)
        slots = np.flatnonzero(wanted)[: request.gpus]
        row = self._rows[self._state[place.node]].copy()
        row[1] -= request.cpu
        row[2] -= request.memory
        short = len(slots) < request.gpus or (request.shared and place.free < request.milli)
        if short or row[1:3].min() < 0 or not request.allowed[row[0]]:
            raise ValueError(f"{request} does not fit node {place.node}")
        gpus[slots] -= request.milli
        row[3:] = np.sort(gpus)
        self._state[place.node] = self._number(row)
        return tuple(slots.tolist())

    def _number(self, row: NDArray[np.int64]) -> int:
        number = self._numbers.setdefault(row.tobytes(), len(self._numbers))
        if number == len(self._rows):
            self._rows = np.concatenate((self._rows, np.empty_like(self._rows)))
        self._rows[number] = row
        return number
