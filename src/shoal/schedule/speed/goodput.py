"""What a second of training is worth: steps a second times the progress that a step makes.

A step at `scale` times the initial batch makes (var + sqr) / (var / scale + sqr) times its progress,
with the squared norm and the variance of the gradient at the initial batch (McCandlish et al. 2018).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.schedule.speed.calibrated import Calibrated

__all__ = ["Batching", "Goodput", "Noise", "best_goodput"]

_TRIED = 50
_ROUNDING = 1e-8


@dataclass(frozen=True)
class Batching:
    """What a job allows. Sizes in samples."""

    initial: int
    most: int
    least_local: int
    most_local: int
    """What one GPU's memory holds."""
    fixed: int | None = None
    """The batch size, where it may not change."""


@dataclass(frozen=True)
class Noise:
    """Of the gradient."""

    sqr: float
    var: float


@dataclass(frozen=True)
class Goodput:
    """The best for each size asked about; arrays of one shape. Zero where it cannot run so."""

    value: NDArray[np.float64]
    """Progress a second, in steps of the initial batch."""
    local: NDArray[np.int64]
    accumulations: NDArray[np.int64]
    """Passes beyond the first, before each agreement."""


def best_goodput(
    times: Calibrated, batching: Batching, noise: Noise, nodes: ArrayLike, replicas: ArrayLike
) -> Goodput:
    """Try batch sizes from the smallest to the largest, in equal ratios."""
    count = np.asarray(replicas, dtype=np.int64)[:, None]
    if batching.fixed is not None:
        batch = np.full((len(count), 1), float(batching.fixed))
    else:
        low = np.maximum(batching.initial, batching.least_local * count).astype(np.float64)
        high = np.maximum(low, batching.most)
        batch = low * (high / low) ** np.linspace(0.0, 1.0, _TRIED)
    share = np.ceil(batch / count - _ROUNDING)
    passes = np.ceil(share / batching.most_local - _ROUNDING)
    alone = (count == 1) & (batch > batching.initial + _ROUNDING)
    passes = np.where(alone, np.maximum(passes, 2), passes)
    local = np.ceil(share / passes - _ROUNDING)
    local = np.minimum(local, batching.most // (count * passes))
    whole = local * passes * count
    possible = (local >= batching.least_local) & (whole <= batching.most)
    scale = np.where(possible, whole, batching.initial) / batching.initial
    worth = (noise.var + noise.sqr) / (noise.var / scale + noise.sqr)
    seconds = (passes - 1) * times.computing(local)
    seconds += times.step(np.asarray(nodes, dtype=np.int64), count[:, 0], np.maximum(local, 1.0))
    value = np.where(possible, worth / seconds, 0.0)
    chosen = value.argmax(axis=1)[:, None]
    picked = [np.take_along_axis(each, chosen, axis=1)[:, 0] for each in (value, local, passes - 1)]
    return Goodput(picked[0], picked[1].astype(np.int64), picked[2].astype(np.int64))
