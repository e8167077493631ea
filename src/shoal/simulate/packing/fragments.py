"""FGD: how much of a node's free GPU a typical pod could not use (Weng et al., USENIX ATC 2023).

For one shape the fragment of a node is all its free GPU if the shape does not fit or needs no GPU, else
what is free on GPUs with less room than the shape's part. Weighted by how often shapes come, that is the
expected fragment; a pod goes where it grows least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.fitting import Mix, Room
from shoal.simulate.packing.nodes import GPU
from shoal.simulate.packing.states import States

__all__ = ["Fragments"]

Floats = NDArray[np.float64]


class Fragments:
    """Memory does not count, as published."""

    def __init__(self, mix: Mix) -> None:
        self._room = Room(mix, np.zeros(GPU + 1))
        self._weight = mix.weight

    def value(self, states: States) -> Floats:
        """(m,): the expected fragment in milli-GPUs, negated."""
        used, fits = self._room.of(states)
        return (used * fits * self._weight).sum(axis=1) - states.gpus.sum(axis=1)

    def score(self, after: Floats, before: Floats) -> Floats:
        """(c,): the logistic function of the change in GPUs, in whole percents: the published results
        come from a Kubernetes scheduler, which has no finer scores and so many equal ones."""
        return np.floor(100 / (1 + np.exp((before - after) / GPU)))
