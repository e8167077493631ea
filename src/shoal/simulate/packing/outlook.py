"""Shoal: how many of a node's free GPUs pods of each shape could still use, cores and memory counted.

FGD asks whether one more pod fits. A node with eight free GPUs and cores for one pod is as good to it as
one with cores for eight; here it is worth an eighth. Shapes are weighted by how often they come.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.fitting import Mix
from shoal.simulate.packing.states import States

__all__ = ["Outlook"]


class Outlook:
    """For each shape that fits, the least of three: milli-GPUs free on GPUs with room for its part; what
    it would use of GPUs until the cores are used up; and until the memory is."""

    growth = True

    def __init__(self, mix: Mix) -> None:
        self._mix = mix
        self._per_cpu = mix.gpu_milli / np.maximum(mix.cpu, 1)
        self._per_memory = mix.gpu_milli / np.maximum(mix.memory, 1)

    def value(self, states: States) -> NDArray[np.float64]:
        """(m,): milli-GPUs."""
        amounts, fits = self._mix.usable(states)
        fits &= states.memory[:, None] >= self._mix.memory
        worth = np.minimum(amounts[:, self._mix.kind], states.cpu[:, None] * self._per_cpu)
        np.minimum(worth, states.memory[:, None] * self._per_memory, out=worth)
        return (worth * fits) @ self._mix.weight
