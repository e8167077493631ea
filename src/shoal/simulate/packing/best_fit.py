"""Best fit: the node with the least left, cores and GPUs counting alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.nodes import GPU, Nodes
from shoal.simulate.packing.states import States

__all__ = ["BestFit"]


class BestFit:
    """Least `cpu / most cpu + gpu / most gpu`, each over that of the largest node; memory does not
    count. Of one node's GPUs the one with the least left."""

    growth = False

    def __init__(self, nodes: Nodes) -> None:
        self._cpu = max(1, int(nodes.cpu.max()))
        self._gpu = int(nodes.gpus.max()) * GPU

    def value(self, states: States) -> NDArray[np.float64]:
        """(m,): the less is left, the higher."""
        return -(states.cpu / self._cpu + states.gpus.sum(axis=1) / self._gpu)
