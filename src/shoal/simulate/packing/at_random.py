"""Any place at all, each equally likely."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from shoal.simulate.packing.fleet import Fleet, Place
from shoal.simulate.packing.states import Request, room

__all__ = ["Random"]


class Random:
    """Any node that the pod fits on, and any of its GPUs with room, each equally likely."""

    def __init__(self, requests: Sequence[Request], seed: int) -> None:
        self._requests = requests
        self._chance = random.Random(f"packing at random, {seed}")

    def choose(self, fleet: Fleet, shape: int) -> Place | None:
        """Where a pod of that shape goes; None where it fits nowhere."""
        request = self._requests[shape]
        able = np.flatnonzero(room(fleet.states(fleet.state), request) >= 0)
        if not len(able):
            return None
        node = int(able[self._chance.randrange(len(able))])
        if not request.shared:
            return Place(node, request.milli)
        gpus = fleet.gpus[node]
        return Place(node, int(self._chance.choice(gpus[gpus >= request.milli].tolist())))
