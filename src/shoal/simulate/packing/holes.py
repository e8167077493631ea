"""What the free part of a GPU comes to, once pods that want a part have come by for a while."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.fitting import Mix
from shoal.simulate.packing.nodes import GPU

__all__ = ["hole_worth"]


def hole_worth(mix: Mix, patience: float) -> NDArray[np.float64]:
    """(1001,): milli-GPUs that are used in the end of 0 to 1000 that are free.

    If a part `p` of all pods want so much of a GPU or less, then one of `patience` pods does with the
    chance `1 - (1 - p) ** patience`, and uses what they ask for on average."""
    asks = mix.gpu_milli
    shared = np.where(asks < GPU, mix.weight, 0.0)
    come = np.bincount(asks, shared, minlength=GPU + 1)[: GPU + 1].cumsum()
    used = np.bincount(asks, shared * asks, minlength=GPU + 1)[: GPU + 1].cumsum()
    mean = np.divide(used, come, out=np.zeros_like(used), where=come > 0)
    return (1 - (1 - come) ** patience) * mean
