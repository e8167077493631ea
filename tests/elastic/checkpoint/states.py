"""States whose every part says of which step it is, so that a mixture of two is found at once."""

from __future__ import annotations

from typing import Any

import torch

TENSORS = 48
ELEMENTS = 32 * 1024  # 6 MiB in all: filling a slot and writing it take long enough to be hit


def state_of(step: int) -> dict[str, Any]:
    """Model, optimizer, RNG of two ranks and cursor as of `step`."""
    return {
        "model": {f"layer{at}.weight": torch.full((ELEMENTS,), float(step)) for at in range(TENSORS)},
        "optimizer": {
            "state": {0: {"step": torch.tensor(float(step)), "exp_avg": torch.full((7, 3), step / 2)}},
            "param_groups": [{"lr": 0.1 / (step + 1), "betas": (0.9, 0.999), "params": [0]}],
        },
        "rng": {0: torch.full((16,), step % 251, dtype=torch.uint8), 1: torch.arange(step % 5)},
        "cursor": {"epoch": step // 10, "position": step * 64, "seed": 3},
        "step": step,
        "world_size": 2,
    }


def same(left: Any, right: Any) -> bool:
    """Equal in type, structure and every bit of every tensor."""
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right
