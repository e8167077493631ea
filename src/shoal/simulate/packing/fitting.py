"""Which of many shapes fit which of many states, and how much GPU each could use there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.pods import Pods, Shapes
from shoal.simulate.packing.states import States

__all__ = ["Mix", "typical"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mix:
    """`t` shapes that ask for GPUs, and how often each comes."""

    cpu: NDArray[np.int64]
    memory: NDArray[np.int64]
    gpus: NDArray[np.int64]
    allowed: NDArray[np.bool_]
    """(models, t)"""
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

    def usable(self, states: States) -> tuple[Floats, NDArray[np.bool_]]:
        """(m, u): free milli-GPUs on GPUs with room for each of `millis`; (m, t): which shape fits,
        but for memory, in states `m`."""
        roomy = states.gpus[:, None, :] >= self.millis[:, None]
        amounts = (states.gpus[:, None, :] * roomy).sum(axis=2)
        holds = roomy.sum(axis=2)
        fits = holds[:, self.kind] >= self.gpus
        fits &= states.cpu[:, None] >= self.cpu
        fits &= self.allowed[states.model]
        return amounts.astype(np.float64), fits


def typical(pods: Pods, models: tuple[str, ...], cover: float) -> Mix:
    """The most frequent shapes until they cover that part of the pods (0 to 1), weighted by how often
    they come; ties go to the shape that came first."""
    counts = pods.counts
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    chosen = order[before < cover * len(pods)]
    total = counts[chosen].sum()
    asks = chosen[pods.shapes.gpus[chosen] > 0]
    return _mix(pods.shapes, asks, counts[asks] / total, models)


def _mix(shapes: Shapes, which: NDArray[np.int64], weight: Floats, models: tuple[str, ...]) -> Mix:
    millis, kind = np.unique(shapes.milli[which], return_inverse=True)
    return Mix(
        cpu=shapes.cpu[which],
        memory=shapes.memory[which],
        gpus=shapes.gpus[which],
        allowed=np.ascontiguousarray(shapes.allowed(models)[which].T),
        weight=weight,
        millis=millis,
        kind=kind,
        idle=1 - float(weight.sum()),
    )
