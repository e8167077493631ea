"""By which factor a learning rate grows with the batch, and how it gets there.

All functions are pure. `scale` is the global batch divided by the one that the learning rate was chosen
for.

- linear, and the gradual warm-up: Goyal and others, "Accurate, Large Minibatch SGD: Training ImageNet in
  1 Hour", 2017, arXiv 1706.02677, sections 2.1 and 2.2
- square root, which keeps the variance of a step: Krizhevsky, "One weird trick for parallelizing
  convolutional neural networks", 2014, arXiv 1404.5997, section 5; advised for adaptive optimizers by
  You and others, arXiv 1904.00962
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Ramp", "linear", "root"]


def linear(scale: float) -> float:
    """k times the batch, k times the rate."""
    return _positive(scale)


def root(scale: float) -> float:
    """k times the batch, sqrt(k) times the rate."""
    return math.sqrt(_positive(scale))


@dataclass(frozen=True)
class Ramp:
    """A factor on its way: from `start` at `step` to whatever is aimed for `steps` later, in a straight
    line. `steps` 0: there at once."""

    start: float = 1.0
    step: int = 0
    steps: int = 0

    def at(self, step: int, aim: float) -> float:
        """The factor of this step; of a step before the ramp, its start."""
        if self.steps <= 0:
            return aim
        way = min(max((step - self.step) / self.steps, 0.0), 1.0)
        return aim if way == 1.0 else self.start + (aim - self.start) * way

    def turn(self, step: int, aim: float) -> Ramp:
        """A new ramp of the same length, from where this one, with this aim, stands."""
        return Ramp(self.at(step, aim), step, self.steps)


def _positive(scale: float) -> float:
    if not scale > 0 or not math.isfinite(scale):
        raise ValueError(f"a batch {scale} times as large is no batch")
    return scale
