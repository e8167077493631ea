"""The step in hand: its samples, the part that the loop body runs on, and what to go back to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from shoal.elastic import randomness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.elastic.allreduce.control import Sum
    from shoal.elastic.ledger.deal import Part, Step

__all__ = ["Hand"]


@dataclass
class _Start:
    """What a step began with, for running it again."""

    random: dict[str, Any]
    buffers: list[torch.Tensor]


class Hand:
    """Of one process. `step` is None between steps, `part` between two passes of the loop body.

    `own_samples`: how many of the step's samples are this rank's; `own_weight`: by how much those count
    that it has been handed so far. `total`: what all said, once the gradients are agreed and until the
    step counts. `may_apply`: optimizers act now. `void`: the step is to be dealt anew, whatever the loop
    body still does with it.
    """

    def __init__(self) -> None:
        self.step: Step | None = None
        self.part: Part | None = None
        self.own_samples = 0
        self.own_weight = 0.0
        self.total: Sum | None = None
        self.may_apply = False
        self.void = False
        self.optimizers_done = 0
        self._start: _Start | None = None

    @property
    def planned(self) -> int:
        """Samples of the step; 0 between steps."""
        return self.step.samples if self.step is not None else 0

    def take(self, step: Step, buffers: Sequence[torch.Tensor] | None) -> None:
        """Begin this step. `buffers`: the models', to be able to run it again; None if that cannot
        happen."""
        self.step = step
        self.own_weight = 0.0
        if buffers is not None:
            self._start = _Start(randomness.capture(), [each.clone() for each in buffers])

    def begin(self, part: Part) -> None:
        """The loop body runs on this part now."""
        self.part = part
        self.total = None
        self.may_apply = False
        self.optimizers_done = 0

    def agreed(self, total: Sum) -> None:
        """The gradients are right: optimizers act."""
        self.total = total
        self.may_apply = True

    def lose(self) -> None:
        """Whatever is in hand cannot be finished."""
        self.void = self.part is not None or self.step is not None
        self.may_apply = False

    def again(self, buffers: Sequence[torch.Tensor]) -> None:
        """The step is let go of; randomness and the models' buffers are what it began with."""
        self.void = self.may_apply = False
        self.total = None
        if self.step is not None and self._start is not None:
            randomness.restore(self._start.random)
            self.rewind(buffers)
        self.step = None

    def rewind(self, buffers: Sequence[torch.Tensor]) -> None:
        """The models' buffers are what the step began with; between steps they are what they are."""
        if self.step is None or self._start is None:
            return
        with torch.no_grad():
            for buffer, old in zip(buffers, self._start.buffers, strict=True):
                buffer.copy_(old)

    def drop(self) -> None:
        """Another state has been taken: nothing is in hand."""
        self.step = self.part = self.total = None
        self.void = False
