"""Which parameters layer-wise scaling and weight decay leave alone."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["split"]


def split(*models: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for `LARS`: matrices and more, with decay and adaptation; vectors and
    single numbers (biases, normalisation), with neither. Empty groups are left out."""
    found = {id(p): p for model in models for p in model.parameters() if p.requires_grad}
    wide = [p for p in found.values() if p.ndim > 1]
    narrow = [p for p in found.values() if p.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": wide, "weight_decay": weight_decay, "adapt": True},
        {"params": narrow, "weight_decay": 0.0, "adapt": False},
    ]
    return [group for group in groups if group["params"]]
