"""AdaScale: how much a larger batch is worth, measured from how much the ranks' gradients differ.

Johnson, Agrawal, Gu, Guestrin, "AdaScale SGD: A User-Friendly Algorithm for Distributed Training",
2020, arXiv 2007.05105. With s the variance of the reference batch's gradient (its covariance's trace),
m the squared norm of the true gradient, and S the batch now in reference batches, the gain is

    r = (s + m) / (s / S + m)        1 <= r <= S for S >= 1

The rate is r times that of the schedule at the scale-invariant step: the sum of the gains so far. The
paper estimates s and m from S gradients of equal batches; here parts may differ in size, so both are
estimated by the sample (`estimate`). With equal parts the two are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["AdaScale", "Noise", "contribution", "estimate", "gain", "smooth", "square_norm"]

_HORIZON = 1000.0


@dataclass(frozen=True)
class Noise:
    """`variance`: of one sample's gradient (trace of the covariance). `signal`: the true gradient's
    squared norm. Estimates: single ones may be negative."""

    variance: float
    signal: float


def square_norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Of all elements together, in fp32 or better: a tensor of one number."""
    flat = [each.flatten().to(torch.promote_types(each.dtype, torch.float32)) for each in tensors]
    return torch.stack([torch.dot(each, each) for each in flat]).sum()


def contribution(square: float, share: float, samples: int) -> float:
    """What one part adds to the sum that `estimate` takes: its samples times its mean gradient's squared
    norm. `square` is of the gradient as buckets hold it, weighted with its `share` of the step."""
    return square / (share * share) * samples if samples > 0 else 0.0


def estimate(weighed: float, parts: int, samples: int, square_norm: float) -> Noise | None:
    """Noise of one step; None where fewer than two parts tell nothing of it.

    `weighed`: the sum of `contribution` over all parts; `parts`: how many had samples; `samples` of the
    step; `square_norm` of its average gradient. Unbiased: a part of n samples has E|g|^2 = m + v / n, so
    that the sum is samples * m + parts * v.
    """
    if parts < 2 or samples <= 0 or not math.isfinite(weighed) or not math.isfinite(square_norm):
        return None
    variance = (weighed - samples * square_norm) / (parts - 1)
    return Noise(variance, square_norm - variance / samples)


def smooth(before: Noise | None, seen: Noise, scale: float) -> Noise:
    """The moving average: theta = max(1 - scale / 1000, 0), the paper's. The first counts fully."""
    if before is None:
        return seen
    theta = min(max(1.0 - scale / _HORIZON, 0.0), 1.0)
    return Noise(
        theta * before.variance + (1 - theta) * seen.variance,
        theta * before.signal + (1 - theta) * seen.signal,
    )


def gain(noise: Noise | None, reference: float, samples: float) -> float:
    """r for a batch of `samples`, the rate having been chosen for one of `reference` samples.

    Between 1 and their ratio (or the ratio and 1); 1 where nothing has been measured.
    """
    if noise is None:
        return 1.0
    variance, signal = max(noise.variance, 0.0), max(noise.signal, 0.0)
    below = variance / samples + signal
    return (variance / reference + signal) / below if below > 0 else 1.0


@dataclass
class AdaScale:
    """The gain of a run: estimates of each step go in, the factor and the invariant step come out.

    Every rank gives it the same numbers and gets the same. `reference`: samples of the batch that the
    rate was chosen for. One user, one thread.
    """

    reference: int
    noise: Noise | None = None
    progress: float = 0.0

    def factor(self, samples: float) -> float:
        """The gain for a batch of that many samples."""
        return gain(self.noise, self.reference, samples)

    def applied(self, seen: Noise | None, samples: int) -> int:
        """A step of that many samples was applied; `seen` is what it showed (`estimate`).

        How many invariant steps it was worth: so often is the schedule to be stepped.
        """
        before = self.step
        if seen is not None:
            self.noise = smooth(self.noise, seen, samples / self.reference)
        self.progress += self.factor(samples)
        return self.step - before

    @property
    def step(self) -> int:
        """The scale-invariant step: where in its schedule a run on the reference batch would be."""
        return math.floor(self.progress)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        noise = self.noise
        return {
            "progress": self.progress,
            "noise": None if noise is None else [noise.variance, noise.signal],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        self.progress = float(state["progress"])
        self.noise = None if state["noise"] is None else Noise(*map(float, state["noise"]))
