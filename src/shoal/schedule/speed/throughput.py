"""Seconds of one training step: computing, and agreeing on the gradient, partly at the same time.

    compute  = a_c + b_c * local
    network  = a_n + b_n * max(replicas - 2, 0)     over several nodes
             = a_r + b_r * max(replicas - 2, 0)     inside one
             = 0                                    alone
    step     = (compute^g + network^g)^(1/g)        g from 1 (one after the other) to 10 (at once)

What was not observed is taken to cost nothing, so that a job tries a larger size once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Observation", "Throughput", "fit"]

Floats = NDArray[np.float64]

_OVERLAPS = np.array([1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0])
_LEAST = 1e-8


@dataclass(frozen=True)
class Observation:
    """Steps as they went with so many replicas on so many nodes, `local` samples each."""

    nodes: int
    replicas: int
    local: int
    step: float
    """Seconds."""
    sync: float
    """Seconds of them that were not computing."""


@dataclass(frozen=True)
class Throughput:
    """The parameters of the module's formulas."""

    compute: tuple[float, float]
    across: tuple[float, float] = (_LEAST, _LEAST)
    """a_n, b_n."""
    inside: tuple[float, float] = (_LEAST, _LEAST)
    """a_r, b_r."""
    overlap: float = 1.0

    def computing(self, local: ArrayLike) -> Floats:
        """Seconds of one pass without agreement."""
        return self.compute[0] + self.compute[1] * np.asarray(local, dtype=np.float64)

    def step(self, nodes: ArrayLike, replicas: ArrayLike, local: ArrayLike) -> Floats:
        """Seconds of a pass that ends with agreement; arguments of any shapes that go together."""
        nodes, replicas = np.asarray(nodes), np.asarray(replicas)
        more = np.maximum(replicas - 2, 0)
        network = np.where(
            nodes > 1,
            self.across[0] + self.across[1] * more,
            np.where(replicas > 1, self.inside[0] + self.inside[1] * more, 0.0),
        )
        compute = self.computing(local)
        longer = np.maximum(compute, network)
        shorter = np.minimum(compute, network) / longer  # powers of a number up to 1 do not overflow
        return longer * (1.0 + shorter**self.overlap) ** (1.0 / self.overlap)


def fit(observations: Sequence[Observation]) -> Throughput:
    """The model nearest to the observations, in relative terms. Raises ValueError for none."""
    if not observations:
        raise ValueError("nothing was observed")
    table = np.array(
        [(each.nodes, each.replicas, each.local, each.step, each.sync) for each in observations],
        dtype=np.float64,
    )
    columns: list[Floats] = [table[:, at] for at in range(5)]
    nodes, replicas, local, step, sync = columns
    compute = _line(local, np.maximum(step - sync, _LEAST))
    if (local == local[0]).all():  # how much of it grows with the samples cannot be told: half
        mean = float(np.mean(step - sync))
        compute = (mean / 2, mean / 2 / observations[0].local)
    alone = Throughput(compute)
    if (replicas == 1).all():
        return alone
    best: tuple[float, Throughput] | None = None
    for overlap in _OVERLAPS:
        model = _with_network(alone, float(overlap), nodes, replicas, step, sync)
        error = np.log(model.step(nodes, replicas, local)) - np.log(step)
        loss = float(np.sqrt(np.mean(error**2))) + 1e-3 * (float(overlap) - 1) ** 2
        if best is None or loss < best[0]:
            best = (loss, model)
    assert best is not None
    return best[1]


def _with_network(
    alone: Throughput, overlap: float, nodes: Floats, replicas: Floats, step: Floats, sync: Floats
) -> Throughput:
    passed = np.maximum(step - sync, _LEAST) / step
    network = step * np.maximum(1.0 - passed**overlap, 0.0) ** (1.0 / overlap)
    network = np.maximum(network, _LEAST)
    more = np.maximum(replicas - 2, 0)
    within, over = (nodes == 1) & (replicas > 1), nodes > 1
    inside = _line(more[within], network[within]) if within.any() else (_LEAST, _LEAST)
    if over.any():
        across = _line(more[over], network[over])
    else:  # a network is not faster than what is inside a node
        across = (max(_LEAST, 1.1 * inside[0]), max(_LEAST, inside[1]))
    return Throughput(alone.compute, across, inside, overlap)


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Intercept and slope, neither below nothing, that miss least in relative terms; the slope is
    nothing where all `x` are equal."""
    weight = 1.0 / y**2
    total, mean_x, mean_y = weight.sum(), (weight * x).sum(), (weight * y).sum()
    mean_x, mean_y = mean_x / total, mean_y / total
    spread = (weight * (x - mean_x) ** 2).sum()
    slope = float((weight * (x - mean_x) * (y - mean_y)).sum() / spread) if spread > 0 else 0.0
    if slope < 0:
        return max(_LEAST, float(mean_y)), _LEAST
    intercept = float(mean_y - slope * mean_x)
    if intercept < 0:
        squared = float((weight * x**2).sum())
        return _LEAST, max(_LEAST, float((weight * x * y).sum()) / squared)
    return max(_LEAST, intercept), max(_LEAST, slope)
