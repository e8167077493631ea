"""FGD: how many of a node's free GPUs the typical pod could not use (Weng et al., USENIX ATC 2023).

For one shape the fragment of a node is all its free GPU if the shape does not fit or needs no GPU, else
what is free on GPUs with less room than the shape's part. Weighted by how often shapes come, that is the
expected fragment; a pod goes where it grows least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.fitting import Mix
from shoal.simulate.packing.states import States

__all__ = ["Fragments"]


class Fragments:
    """Memory does not count, as published."""

    growth = True

    def __init__(self, mix: Mix) -> None:
        self._mix = mix

    def value(self, states: States) -> NDArray[np.float64]:
        """(m,): the expected fragment in milli-GPUs, negated."""
        amounts, fits = self._mix.usable(states)
        of_use = (amounts[:, self._mix.kind] * fits) @ self._mix.weight
        return of_use - states.gpus.sum(axis=1)
