"""LAMB: Adam whose step has, in each layer, the length of the layer's weights.

You and others, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2019,
arXiv 1904.00962, algorithm 2.
"""

# torch's multi-tensor operations have leading underscores and partial types
# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false, reportUnknownMemberType=false

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from shoal.elastic.optim import layers
from shoal.elastic.optim.layers import Batch
from shoal.elastic.optim.layerwise import LayerWise

__all__ = ["LAMB"]


class LAMB(LayerWise):
    """At a parameter's step t, with rate g, decay d and betas (p, q), for each layer's weights w:

        m = p * m + (1 - p) * grad;      v = q * v + (1 - q) * grad^2
        r = (m / (1 - p^t)) / (sqrt(v / (1 - q^t)) + eps) + d * w
        w = w - g * phi(|w|) / |r| * r

    `phi` clips to `trust_bounds`, or is the identity. The ratio is 1 where |w| or |r| is zero, and in
    parameter groups with `adapt=False` (biases, normalisation: `grouping.split`). Parameters in bf16 and
    fp16 are stepped on an fp32 copy.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        trust_bounds: tuple[float, float] | None = None,
    ) -> None:
        """Raises ValueError for values outside of their ranges."""
        if float(lr) < 0 or weight_decay < 0 or eps < 0:
            raise ValueError(f"lr {lr}, weight_decay {weight_decay} and eps {eps} must not be negative")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas {betas} must be in [0, 1)")
        if trust_bounds is not None and not 0 < trust_bounds[0] <= trust_bounds[1]:
            raise ValueError(f"trust_bounds {trust_bounds} must be positive and in order")
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "trust_bounds": trust_bounds,
                "adapt": True,
            },
        )

    def apply(self, batch: Batch, group: dict[str, Any]) -> None:
        """See `LayerWise.apply`."""
        first, second = group["betas"]
        mean, square = batch.moments("mean"), batch.moments("square")
        steps = _count(batch)
        torch._foreach_lerp_(mean, batch.gradients, 1 - first)
        torch._foreach_mul_(square, second)
        torch._foreach_addcmul_(square, batch.gradients, batch.gradients, 1 - second)

        divisor = torch._foreach_div(square, [1 - second**t for t in steps])
        torch._foreach_sqrt_(divisor)
        torch._foreach_add_(divisor, group["eps"])
        update = torch._foreach_div(mean, [1 - first**t for t in steps])
        torch._foreach_div_(update, divisor)
        if group["weight_decay"]:
            torch._foreach_add_(update, batch.work, alpha=group["weight_decay"])

        trust = torch.ones(len(update), dtype=update[0].dtype, device=update[0].device)
        if group["adapt"]:
            weight = layers.norms(batch.work)
            length = layers.norms(update)
            bounds = group["trust_bounds"]
            target = weight if bounds is None else torch.where(weight > 0, weight.clamp(*bounds), weight)
            trust = layers.ratios(target, length)
        torch._foreach_sub_(batch.work, layers.scaled(update, trust * group["lr"]))
        batch.store()


def _count(batch: Batch) -> list[int]:
    """Each parameter's own step from 1: one without a gradient has not stepped. Kept on the CPU, so
    that reading it waits for no device."""
    for state in batch.states:
        state["step"] = state.get("step", torch.zeros((), dtype=torch.int64)) + 1
    return [int(state["step"]) for state in batch.states]
