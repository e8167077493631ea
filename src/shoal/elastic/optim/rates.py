"""A factor put around one step of an optimizer, and taken away after it.

Schedulers keep the learning rate in `param_groups`, and some compute the next from what they find there:
between steps it must be theirs, or the factor would be multiplied in again at each step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any

import torch

__all__ = ["scaled"]


@contextlib.contextmanager
def scaled(optimizer: torch.optim.Optimizer, factor: float | Sequence[float]) -> Generator[None]:
    """Within: every group's `lr` times the factor, or each group's times its own. After it, also after
    an error, the rates are what they were; one that was set to another value since is kept.

    A rate that is a tensor stays the same tensor, as compiled optimizers want it.

    Raises:
        ValueError: as many factors as groups are needed.
    """
    groups = optimizer.param_groups
    factors = [factor] * len(groups) if isinstance(factor, (int, float)) else list(factor)
    if len(factors) != len(groups):
        raise ValueError(f"{len(factors)} factors for {len(groups)} parameter groups")
    if all(each == 1.0 for each in factors):
        yield
        return
    before = [_read(group) for group in groups]
    during: list[float] = []
    for group, base, each in zip(groups, before, factors, strict=True):
        _write(group, base * each)
        during.append(_read(group))
    try:
        yield
    finally:
        for group, base, there in zip(groups, before, during, strict=True):
            if _read(group) == there:
                _write(group, base)


def _read(group: dict[str, Any]) -> float:
    return float(group["lr"])


def _write(group: dict[str, Any], rate: float) -> None:
    there = group["lr"]
    if isinstance(there, torch.Tensor):
        there.fill_(rate)
    else:
        group["lr"] = rate
