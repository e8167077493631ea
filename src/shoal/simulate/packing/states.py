"""What is free on a node, and the states that one more pod can leave it in.

Which of a node's GPUs is which makes no difference: a state lists them from the least free to the most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.nodes import GPU, Nodes
from shoal.simulate.packing.pods import Shapes

__all__ = ["Request", "States", "join", "outcomes", "requests_of", "room"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class States:
    """Of `m` nodes."""

    kind: Ints
    """(m,): of the node, as `Nodes.kind`."""
    cpu: Ints
    """(m,): thousandths of a core free."""
    memory: Ints
    """(m,): MiB free."""
    gpus: Ints
    """(m, g): milli-GPUs free of each, ascending; 0 for a GPU that the node does not have."""

    def __len__(self) -> int:
        return len(self.cpu)

    def __getitem__(self, which: Ints | NDArray[np.bool_]) -> States:
        return States(self.kind[which], self.cpu[which], self.memory[which], self.gpus[which])


@dataclass(frozen=True)
class Request:
    """What one pod asks for."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    """Of each GPU."""
    allowed: NDArray[np.bool_]
    """(kinds,): on which it may run."""

    @property
    def shared(self) -> bool:
        """It wants a part of one GPU."""
        return 0 < self.milli < GPU

    @property
    def gpu_milli(self) -> int:
        """Of all its GPUs together."""
        return self.gpus * self.milli


def join(first: States, second: States) -> States:
    """The states of both, in that order."""
    return States(
        np.concatenate((first.kind, second.kind)),
        np.concatenate((first.cpu, second.cpu)),
        np.concatenate((first.memory, second.memory)),
        np.concatenate((first.gpus, second.gpus)),
    )


def requests_of(shapes: Shapes, nodes: Nodes) -> list[Request]:
    """Of each shape, on that cluster."""
    amounts = np.column_stack((shapes.cpu, shapes.memory, shapes.gpus, shapes.milli)).tolist()
    allowed = shapes.allowed(nodes.models)[:, nodes.kind_model]
    return [Request(*each, allowed=able) for each, able in zip(amounts, allowed, strict=True)]


def room(states: States, request: Request) -> Ints:
    """(m,): GPUs with room for the pod's part of one; -1 where the pod does not fit the node."""
    roomy = (states.gpus >= max(1, request.milli)).sum(axis=1)
    fits = (
        (states.cpu >= request.cpu)
        & (states.memory >= request.memory)
        & (roomy >= request.gpus)
        & request.allowed[states.kind]
    )
    return np.where(fits, roomy, -1)


def outcomes(states: States, request: Request) -> tuple[Ints, Ints, States]:
    """Every state (c,) that the pod can leave one of `states` in, together with which that was (c,),
    ascending, and how much was free (c,) on the GPU that it takes a part of (else 0). A part is tried
    once on each amount that is free, least first; whole GPUs are all alike."""
    roomy = room(states, request)
    if not request.shared:
        origin = np.flatnonzero(roomy >= 0)
        gpus = states.gpus[origin]
        if request.gpus:  # the last ones are whole
            kept = gpus[:, : -request.gpus]
            gpus = np.concatenate((np.zeros_like(gpus[:, : request.gpus]), kept), axis=1)
        free = np.zeros(len(origin), dtype=np.int64)
    else:
        first = np.ones(states.gpus.shape, dtype=np.bool_)
        np.not_equal(states.gpus[:, 1:], states.gpus[:, :-1], out=first[:, 1:])
        first &= states.gpus >= request.milli
        first &= roomy[:, None] > 0
        origin, slot = np.nonzero(first)
        free = states.gpus[origin, slot]
        gpus = states.gpus[origin]
        gpus[np.arange(len(origin)), slot] -= request.milli
        gpus.sort(axis=1)
    before = states[origin]
    after = States(before.kind, before.cpu - request.cpu, before.memory - request.memory, gpus)
    return origin, free, after
