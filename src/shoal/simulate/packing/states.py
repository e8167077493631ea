"""What is free on a node, and the states that one more pod can leave it in.

Which of a node's GPUs is which makes no difference: a state lists them from the most free to the least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.nodes import GPU
from shoal.simulate.packing.pods import Shapes

__all__ = ["Request", "States", "fitting_gpus", "outcomes", "requests_of"]


@dataclass(frozen=True)
class States:
    """Of `m` nodes."""

    model: NDArray[np.int64]
    """(m,): index of the GPUs' model."""
    cpu: NDArray[np.int64]
    """(m,): thousandths of a core free."""
    memory: NDArray[np.int64]
    """(m,): MiB free."""
    gpus: NDArray[np.int64]
    """(m, g): milli-GPUs free of each, descending; 0 for a GPU that the node does not have."""

    def __len__(self) -> int:
        return len(self.cpu)

    def __getitem__(self, which: NDArray[np.int64] | NDArray[np.bool_] | slice) -> States:
        return States(self.model[which], self.cpu[which], self.memory[which], self.gpus[which])


@dataclass(frozen=True)
class Request:
    """What one pod asks for."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    """Of each GPU."""
    allowed: NDArray[np.bool_]
    """(models,): which will do."""

    @property
    def shared(self) -> bool:
        """It wants a part of one GPU."""
        return 0 < self.milli < GPU

    @property
    def gpu_milli(self) -> int:
        """Of all its GPUs together."""
        return self.gpus * self.milli


def requests_of(shapes: Shapes, models: tuple[str, ...]) -> list[Request]:
    """Of each shape, on a cluster that has those models."""
    amounts = np.column_stack((shapes.cpu, shapes.memory, shapes.gpus, shapes.milli)).tolist()
    allowed = shapes.allowed(models)
    return [Request(*each, allowed=able) for each, able in zip(amounts, allowed, strict=True)]


def fitting_gpus(states: States, request: Request) -> NDArray[np.int64]:
    """(m,): GPUs that could take the pod's part of one; -1 where the pod does not fit the node."""
    roomy = (states.gpus >= max(1, request.milli)).sum(axis=1)
    fits = (
        (states.cpu >= request.cpu)
        & (states.memory >= request.memory)
        & (roomy >= request.gpus)
        & request.allowed[states.model]
    )
    return np.where(fits, roomy, -1)


def outcomes(states: States, request: Request) -> tuple[NDArray[np.int64], NDArray[np.int64], States]:
    """Every state (c,) that the pod can leave one of `states` in: where it was before (c,), ascending,
    how much was free (c,) on the GPU that it takes (0 without one), and the states. A part of a GPU is
    tried once on each amount that is free, largest first; whole ones are all alike."""
    room = fitting_gpus(states, request)
    if not request.shared:
        origin = np.flatnonzero(room >= 0)
        slot = np.zeros(len(origin), dtype=np.int64)
    else:
        last = np.ones(states.gpus.shape, dtype=np.bool_)
        # of equal GPUs the last one, so that the row stays sorted but for what is below it
        np.not_equal(states.gpus[:, :-1], states.gpus[:, 1:], out=last[:, :-1])
        last &= np.arange(states.gpus.shape[1]) < room[:, None]
        origin, slot = np.nonzero(last)
    gpus = states.gpus[origin]
    rows = np.arange(len(origin))
    free = gpus[rows, slot] if request.gpus else slot
    if request.shared:
        gpus[rows, slot] -= request.milli
        gpus = -np.sort(-gpus, axis=1)
    else:  # the first ones are whole
        gpus = np.roll(gpus, -request.gpus, axis=1)
        gpus[:, gpus.shape[1] - request.gpus :] = 0
    after = States(
        states.model[origin],
        states.cpu[origin] - request.cpu,
        states.memory[origin] - request.memory,
        gpus,
    )
    return origin, free, after
