"""The frame of LARS: the walk over groups, exact loading. What a step is, each says itself."""

# torch's own types are partial
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from shoal.elastic.optim import layers
from shoal.elastic.optim.layers import Batch

__all__ = ["LayerWise"]


class LayerWise(torch.optim.Optimizer):
    """An optimizer that steps many tensors of one type at once."""

    @abstractmethod
    def apply(self, batch: Batch, group: dict[str, Any]) -> None:
        """One step on these parameters, with the options of their group."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step on every parameter that has a gradient; gives what `closure` gave.

        Raises:
            RuntimeError: a gradient is sparse, or a parameter complex.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for batch in layers.batches(self, group["params"]):
                self.apply(batch, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, without rounding fp32 state of low-precision parameters."""
        layers.load_exactly(self, super().load_state_dict, state_dict)
