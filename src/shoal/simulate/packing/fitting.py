"""Which of the typical shapes fit which of many states, and how much GPU each could use there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.nodes import GPU, Nodes
from shoal.simulate.packing.pods import Pods, Shapes
from shoal.simulate.packing.states import States

__all__ = ["Mix", "Room", "typical"]

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
    """(t,): parts of all pods of the mix; what is missing to 1 needs no GPU."""
    millis: NDArray[np.int64]
    """(u,): the different parts of a GPU that are asked for, ascending."""
    kind: NDArray[np.int64]
    """(t,): index into `millis`."""

    @property
    def gpu_milli(self) -> NDArray[np.int64]:
        """(t,): of all GPUs of the shape together."""
        return self.gpus * self.millis[self.kind]


class Room:
    """How much of the free GPU of states could be used by each shape of a mix, and whether it fits.

    `holes` (1001,) is what 0 to 1000 free milli-GPUs are worth where a shape wants more than that."""

    def __init__(self, mix: Mix, holes: Floats) -> None:
        free = np.arange(GPU + 1)[:, None]
        enough = free >= mix.millis
        used = np.where(enough, free, holes[:, None])
        self._mix = mix
        self._table = np.concatenate((used, enough), axis=1)  # (1001, 2u)

    def of(self, states: States) -> tuple[Floats, NDArray[np.bool_]]:
        """(m, t): milli-GPUs of use; and whether the shape fits, but for its memory."""
        mix = self._mix
        found = self._table[states.gpus].sum(axis=1)
        used, roomy = found[:, mix.kind], found[:, mix.kind + len(mix.millis)]
        fits = roomy >= mix.gpus
        fits &= states.cpu[:, None] >= mix.cpu
        fits &= mix.allowed[states.kind]
        return used, fits


def typical(pods: Pods, nodes: Nodes, cover: float, *, idle: bool) -> Mix:
    """The most frequent shapes until they cover that part of the pods (0 to 1), weighted by how often
    they come; ties go to the shape that came first. Pods that need no GPU count as a shape like any
    other with `idle`; else all of them are in the mix, and what is covered is the others."""
    asks = pods.shapes.gpus > 0
    counts = pods.counts if idle else np.where(asks, pods.counts, 0)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    chosen = order[before < cover * counts.sum()]
    which = chosen[asks[chosen]]
    rest = pods.counts[chosen[~asks[chosen]] if idle else ~asks].sum()
    weight = pods.counts[which] / (pods.counts[which].sum() + rest)
    return _mix(pods.shapes, which, weight, nodes)


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
    )
