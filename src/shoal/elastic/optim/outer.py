"""The outer step of local SGD and DiLoCo: workers train alone for some steps, then agree.

What a worker has done since the last agreement is a pseudo-gradient: the agreed parameters minus its
own. Its average over the workers is handed to an outer optimizer, which moves the agreed parameters.

- Stich, "Local SGD Converges Fast and Communicates Little", 2018, arXiv 1805.09767: rate 1 and no
  momentum, which is the mean of the workers' parameters (`AVERAGE`)
- Douillard and others, "DiLoCo: Distributed Low-Communication Training of Language Models", 2023,
  arXiv 2311.08105: SGD with Nesterov's momentum, rate 0.7, momentum 0.9 (the default)

All functions are pure: they change no tensor that they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["AVERAGE", "Outer", "outer_step", "pseudo_gradient"]


@dataclass(frozen=True)
class Outer:
    """SGD on the agreed parameters. Nesterov's look-ahead is in torch's form, evaluated at the present
    parameters: v = m * v + d; p = p - lr * (d + m * v), without it p = p - lr * v.

    Raises:
        ValueError: a value out of its range.
    """

    lr: float = 0.7
    momentum: float = 0.9
    nesterov: bool = True

    def __post_init__(self) -> None:
        if self.lr <= 0 or not 0 <= self.momentum < 1:
            raise ValueError(f"outer lr {self.lr} must be positive, momentum {self.momentum} in [0, 1)")


AVERAGE = Outer(1.0, 0.0, nesterov=False)
"""Local SGD: everybody goes on from the mean."""


def pseudo_gradient(
    agreed: Sequence[torch.Tensor], own: Sequence[torch.Tensor], weight: float
) -> torch.Tensor:
    """weight * (agreed - own), one after another, and the weight itself at the end: shape
    (elements + 1,), type and device of `agreed`. The weights travel along, so that the sum over those
    that take part can be divided by exactly their weights."""
    parts = [(a - o.to(a.dtype)).flatten() for a, o in zip(agreed, own, strict=True)]
    flat = torch.cat([*parts, torch.ones(1, dtype=agreed[0].dtype, device=agreed[0].device)])
    return flat.mul_(weight)


def outer_step(
    agreed: Sequence[torch.Tensor],
    total: torch.Tensor,
    velocity: Sequence[torch.Tensor],
    outer: Outer,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """New agreed parameters and new velocity, shapes as before.

    `total`: the sum of everybody's `pseudo_gradient`.

    Raises:
        ValueError: no rank had any weight, or the sum is not finite; nothing is to be moved by that.
    """
    weight = total[-1].item()
    if not weight > 0:
        raise ValueError("no worker contributed to this synchronisation")
    if not bool(torch.isfinite(total).all()):
        raise ValueError("a worker's parameters are not finite: the agreed ones are left as they are")
    shape = [each.numel() for each in agreed]
    means = torch.split(total[:-1] / weight, shape)
    moved: list[torch.Tensor] = []
    speeds: list[torch.Tensor] = []
    for base, mean, before in zip(agreed, means, velocity, strict=True):
        delta = mean.view_as(base)
        speed = before * outer.momentum + delta
        direction = delta + outer.momentum * speed if outer.nesterov else speed
        moved.append(base - outer.lr * direction)
        speeds.append(speed)
    return moved, speeds
