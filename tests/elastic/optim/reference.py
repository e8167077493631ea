"""The published update rules, said a second time: one layer, plain loops over lists of floats."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class Lars:
    """Algorithm 1 of arXiv 1708.03888 for one layer."""

    weights: list[float]
    momentum: float
    decay: float
    trust: float
    adapt: bool = True
    velocity: list[float] = field(default_factory=list)

    def step(self, gradient: list[float], rate: float) -> None:
        weight_norm = math.sqrt(math.fsum(w * w for w in self.weights))
        gradient_norm = math.sqrt(math.fsum(g * g for g in gradient))
        divisor = gradient_norm + self.decay * weight_norm
        local = 1.0
        if self.adapt and weight_norm > 0 and divisor > 0:
            local = self.trust * weight_norm / divisor
        before = self.velocity or [0.0] * len(self.weights)
        self.velocity = [
            self.momentum * v + rate * local * (g + self.decay * w)
            for v, g, w in zip(before, gradient, self.weights, strict=True)
        ]
        self.weights = [w - v for w, v in zip(self.weights, self.velocity, strict=True)]
