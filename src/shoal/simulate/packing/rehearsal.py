"""Which pods end up on which kind of node, found out on a small cluster before the large one is filled.

A node with few cores for each GPU is no place for pods that want many; those go elsewhere, so what they
could use there says nothing about what its GPUs are worth. Filling a small cluster of the same kinds of
nodes, with pods drawn from the same list, shows who comes to each kind; these are the weights with which
it is filled once more, and so on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.arrivals import arrivals
from shoal.simulate.packing.filling import fill
from shoal.simulate.packing.fitting import Mix
from shoal.simulate.packing.nodes import Nodes
from shoal.simulate.packing.outlook import Outlook
from shoal.simulate.packing.pods import Pods
from shoal.simulate.packing.states import requests_of
from shoal.simulate.packing.where import Where

__all__ = ["rehearse"]

_DEMAND = 1.3
_NODES = 200
_TIMES = 5
_DOUBT = 10.0
"""Pods of the whole mix that each kind is taken to have had before the first rehearsal."""


def rehearse(nodes: Nodes, pods: Pods, mix: Mix, holes: NDArray[np.float64]) -> NDArray[np.float64]:
    """(kinds, t): how often a pod on each kind of node has each of the mix' shapes. Rows sum to 1."""
    small = nodes.thinned(max(1, len(nodes.names) // _NODES))
    requests = requests_of(pods.shapes, nodes)
    counts = np.tile(_DOUBT * mix.weight / mix.weight.sum(), (len(nodes.kind_model), 1))
    for time in range(_TIMES):
        weight = counts / counts.sum(axis=1, keepdims=True)
        policy = Where(requests, Outlook(mix, weight, holes))
        order = arrivals(pods, _DEMAND * small.gpu_milli, f"rehearsal {time}")
        came = np.zeros((len(counts), len(requests)))
        for placed in fill(small, requests, policy, order.tolist()):
            came[small.kind[placed.node], placed.shape] += 1
        counts += came[:, mix.shape]
    return counts / counts.sum(axis=1, keepdims=True)
