"""Shoal: how much of a node's free GPU comes to be used, cores and memory counted.

FGD asks whether one more pod fits, so a node with eight free GPUs and cores for one pod is as good to it
as one with cores for eight; here it is worth about an eighth. And FGD gives a free part that a shape
cannot use no worth at all, though smaller pods come by to use it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.fitting import Mix, Room
from shoal.simulate.packing.states import States

__all__ = ["Outlook"]

Floats = NDArray[np.float64]


class Outlook:
    """For each shape the least of three: milli-GPUs that will be used, if the shape can use what is free
    on GPUs with room for its part, and others use the holes; what it would use of GPUs until the cores
    are used up; and until the memory is. Where it does not fit there are holes alone."""

    def __init__(self, mix: Mix, weight: Floats, holes: Floats) -> None:
        self._room = Room(mix, holes)
        self._weight = weight  # (kinds, t)
        self._holes = holes
        self._memory = mix.memory
        self._per_cpu = mix.gpu_milli / np.maximum(mix.cpu, 1)
        self._per_memory = mix.gpu_milli / np.maximum(mix.memory, 1)

    def value(self, states: States) -> Floats:
        """(m,): milli-GPUs."""
        used, fits = self._room.of(states)
        fits &= states.memory[:, None] >= self._memory
        worth = np.where(fits, used, self._holes[states.gpus].sum(axis=1)[:, None])
        np.minimum(worth, states.cpu[:, None] * self._per_cpu, out=worth)
        np.minimum(worth, states.memory[:, None] * self._per_memory, out=worth)
        worth *= self._weight[states.kind]
        return worth.sum(axis=1)

    def score(self, after: Floats, before: Floats) -> Floats:
        """(c,): the change."""
        return after - before
