"""Best fit, as in the experiments published with FGD: the node with the least left of cores and GPUs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.nodes import GPU, Nodes
from shoal.simulate.packing.states import States

__all__ = ["BestFit"]

Floats = NDArray[np.float64]


class BestFit:
    """Free cores over those of the largest node, and free GPUs likewise, count half each; memory does
    not count. Nodes are told apart by whole percents, as a Kubernetes scheduler scores them."""

    def __init__(self, nodes: Nodes) -> None:
        self._cpu = max(1, int(nodes.cpu.max()))
        self._gpu = int(nodes.gpus.max()) * GPU

    def value(self, states: States) -> Floats:
        """(m,): 1 for a node with nothing left."""
        return 1 - (states.cpu / self._cpu + states.gpus.sum(axis=1) / self._gpu) / 2

    def score(self, after: Floats, before: Floats) -> Floats:
        """(c,): whole percents."""
        return np.floor(100 * after)
