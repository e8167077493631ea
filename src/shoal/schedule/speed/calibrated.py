"""A fitted model where nothing was measured, and the measurements where something was.

Seven parameters cannot say all that a machine does. So the model is corrected by what it missed: by the
ratio at the nearest measured sizes, linear between them, for computing over all placements and for whole
steps at each count of nodes and replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.speed.throughput import Observation, Throughput, fit

__all__ = ["Calibrated", "calibrate"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Ratios = tuple[list[float], list[float]]
"""Samples of one replica, ascending, and measured over predicted seconds."""


@dataclass(frozen=True)
class Calibrated:
    """Seconds of steps."""

    model: Throughput
    compute: Ratios
    steps: Mapping[tuple[int, int], Ratios]
    """By nodes and replicas."""

    def computing(self, local: Floats) -> Floats:
        """Of one pass without agreement; any shape."""
        return self.model.computing(local) * np.interp(local, *self.compute)

    def step(self, nodes: Ints, replicas: Ints, local: Floats) -> Floats:
        """Of a pass that ends with agreement, (s, b): nodes and replicas (s,), `local` (s, b)."""
        seconds = self.model.step(nodes[:, None], replicas[:, None], local)
        for row, key in enumerate(zip(nodes.tolist(), replicas.tolist(), strict=True)):
            ratios = self.steps.get(key)
            if ratios is not None:
                seconds[row] *= np.interp(local[row], *ratios)
        return seconds


def calibrate(observations: Sequence[Observation]) -> Calibrated:
    """From steps as they went. Raises ValueError for none."""
    model = fit(observations)
    compute: dict[float, list[float]] = {}
    steps: dict[tuple[int, int], dict[float, list[float]]] = {}
    for each in observations:
        predicted = float(model.computing(each.local))
        compute.setdefault(each.local, []).append((each.step - each.sync) / predicted)
        there = steps.setdefault((each.nodes, each.replicas), {})
        predicted = float(model.step(each.nodes, each.replicas, each.local))
        there.setdefault(each.local, []).append(each.step / predicted)
    return Calibrated(model, _ratios(compute), {key: _ratios(found) for key, found in steps.items()})


def _ratios(found: Mapping[float, Sequence[float]]) -> Ratios:
    sizes = sorted(found)
    return sizes, [sum(found[size]) / len(found[size]) for size in sizes]
