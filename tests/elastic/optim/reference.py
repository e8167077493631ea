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


@dataclass
class Lamb:
    """Algorithm 2 of arXiv 1904.00962 for one layer."""

    weights: list[float]
    betas: tuple[float, float]
    eps: float
    decay: float
    bounds: tuple[float, float] | None = None
    adapt: bool = True
    mean: list[float] = field(default_factory=list)
    square: list[float] = field(default_factory=list)
    steps: int = 0

    def step(self, gradient: list[float], rate: float) -> None:
        first, second = self.betas
        self.steps += 1
        mean = self.mean or [0.0] * len(gradient)
        square = self.square or [0.0] * len(gradient)
        self.mean = [first * m + (1 - first) * g for m, g in zip(mean, gradient, strict=True)]
        self.square = [second * v + (1 - second) * g * g for v, g in zip(square, gradient, strict=True)]
        direction = [
            (m / (1 - first**self.steps)) / (math.sqrt(v / (1 - second**self.steps)) + self.eps)
            + self.decay * w
            for m, v, w in zip(self.mean, self.square, self.weights, strict=True)
        ]
        weight_norm = math.sqrt(math.fsum(w * w for w in self.weights))
        length = math.sqrt(math.fsum(r * r for r in direction))
        ratio = 1.0
        if self.adapt and weight_norm > 0 and length > 0:
            phi = weight_norm
            if self.bounds is not None:
                phi = min(max(weight_norm, self.bounds[0]), self.bounds[1])
            ratio = phi / length
        self.weights = [w - rate * ratio * r for w, r in zip(self.weights, direction, strict=True)]
