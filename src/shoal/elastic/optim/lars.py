"""LARS: SGD with momentum and a rate that follows each layer's ratio of weight to gradient.

You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", 2017, arXiv 1708.03888,
algorithm 1.
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

__all__ = ["LARS"]


class LARS(LayerWise):
    """With learning rate g, momentum m, decay b and trust coefficient t, for each layer's weights w:

        local = t * |w| / (|grad| + b * |w| + eps)
        v     = m * v + g * local * (grad + b * w)
        w     = w - v

    `local` is 1 where |w| or its divisor is zero, and in parameter groups with `adapt=False` (biases,
    normalisation: `grouping.split`). Parameters in bf16 and fp16 are stepped on an fp32 copy.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        eps: float = 0.0,
    ) -> None:
        """Raises ValueError for values outside of their ranges."""
        if float(lr) < 0 or weight_decay < 0 or eps < 0:
            raise ValueError(f"lr {lr}, weight_decay {weight_decay} and eps {eps} must not be negative")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum {momentum} must be in [0, 1)")
        if trust_coefficient <= 0:
            raise ValueError(f"trust_coefficient {trust_coefficient} must be positive")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "weight_decay": weight_decay,
                "trust_coefficient": trust_coefficient,
                "eps": eps,
                "adapt": True,
            },
        )

    def apply(self, batch: Batch, group: dict[str, Any]) -> None:
        """See `LayerWise.apply`."""
        decay: float = group["weight_decay"]
        update = batch.gradients
        trust = torch.ones(len(batch.work), dtype=batch.work[0].dtype, device=batch.work[0].device)
        if group["adapt"]:
            weight = layers.norms(batch.work)
            divisor = layers.norms(update) + decay * weight + group["eps"]
            trust = layers.ratios(group["trust_coefficient"] * weight, divisor)
        if decay:
            update = torch._foreach_add(update, batch.work, alpha=decay)
        step = layers.scaled(update, trust * group["lr"])
        if group["momentum"]:
            velocity = batch.moments("velocity")
            torch._foreach_mul_(velocity, group["momentum"])
            torch._foreach_add_(velocity, step)
            step = velocity
        torch._foreach_sub_(batch.work, step)
        batch.store()
