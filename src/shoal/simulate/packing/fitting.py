"""Which of many shapes fit which of many states, and how much GPU each could use there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.nodes import Nodes
from shoal.simulate.packing.pods import Pods, Shapes
from shoal.simulate.packing.states import States

__all__ = ["Mix", "typical"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mix:
    """`t` shapes that ask for GPUs, and how often each comes."""

    shape: NDArray[np.int64]
    """(t,): index of the shape."""
    cpu: NDArray[np.int64]
    memory: NDArray[np.int64]
    gpus: NDArray[np.int64]
    allowed: NDArray[np.bool_]
    """(kinds of nodes, t)"""
    weight: Floats
    """(t,): parts of all pods; what is missing to 1 needs no GPU, or is rare."""
    millis: NDArray[np.int64]
    """(u,): the different parts of a GPU that are asked for, ascending."""
    kind: NDArray[np.int64]
    """(t,): index into `millis`."""
    idle: float
    """The part of pods that need no GPU."""

    @property
    def gpu_milli(self) -> NDArray[np.int64]:
        """(t,): of all GPUs of the shape together."""
        return self.gpus * self.millis[self.kind]

    def fits(self, states: States, roomy: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(m, t): whether each shape fits each state, but for its memory; `roomy` (m, u) are the GPUs
        with room for each of `millis`."""
        fits = roomy[:, self.kind] >= self.gpus
        fits &= states.cpu[:, None] >= self.cpu
        fits &= self.allowed[states.kind]
        return fits


def typical(pods: Pods, nodes: Nodes, cover: float) -> Mix:
    """The most frequent shapes until they cover that part of the pods (0 to 1), weighted by how often
    they come; ties go to the shape that came first."""
    counts = pods.counts
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    chosen = order[before < cover * len(pods)]
    total = counts[chosen].sum()
    asks = chosen[pods.shapes.gpus[chosen] > 0]
    return _mix(pods.shapes, asks, counts[asks] / total, nodes)


def _mix(shapes: Shapes, which: NDArray[np.int64], weight: Floats, nodes: Nodes) -> Mix:
    millis, kind = np.unique(shapes.milli[which], return_inverse=True)
    return Mix(
        shape=which,
        cpu=shapes.cpu[which],
        memory=shapes.memory[which],
        gpus=shapes.gpus[which],
        allowed=shapes.allowed(nodes.models)[which].T[nodes.kind_model],
        weight=weight,
        millis=millis,
        kind=kind,
        idle=1 - float(weight.sum()),
    )
