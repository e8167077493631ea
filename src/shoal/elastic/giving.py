"""What a donor's training does for joiners: the state of a step boundary, copied beside the next step.

A joiner is served at the first boundary at which memory for the copy is there; what comes after it, the
gradients of each step, is packed into memory that is used again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from shoal.elastic import state, threads
from shoal.elastic.blocks import Blocks
from shoal.elastic.copying import Copying
from shoal.elastic.state import Packed
from shoal.elastic.view import Cursor

if TYPE_CHECKING:
    from shoal.elastic.joining.donor import Donor
    from shoal.elastic.training import Training
    from shoal.elastic.wrapping import Objects

__all__ = ["Giving"]


class Giving:
    """Of one process; `serve`, `settle` and `cancel` belong to the thread that trains."""

    def __init__(self, training: Training, donor: Donor) -> None:
        self._training = training
        self._donor = donor
        self._blocks: Blocks | None = None
        self._copying: Copying | None = None
        self._moment = (0, Cursor())
        self._at_once = False

    def serve(self) -> None:
        """At a step boundary: begin to copy the state, if a joiner waits for it."""
        training = self._training
        if not self._donor.followed and not self._donor.wanted:
            self._forget_memory()
        if self._copying is not None:
            self.cancel()  # its step was counted without an optimizer: a scaler has left it out
        if not self._donor.wanted:
            return
        tree, blocks = training.whole(), self._memory()
        if not blocks.ready(state.plan(tree).size):
            return
        self._moment = training.applied, training.cursor
        steady = [] if self._at_once else _steady(training.objects)
        self._copying = Copying(tree, steady, blocks, training.parameters_digest)
        if self._at_once:
            self.settle()

    def settle(self) -> None:
        """Parameters may change after this; joiners that wait are given the copy."""
        copying, self._copying = self._copying, None
        if copying is None:
            return
        found = copying.finish()
        # a script that changes parameters between its steps is given no time for it
        self._at_once = found is None
        if found is not None:
            packed, digest = found
            self._donor.snapshot(packed, *self._moment, digest)

    def applying(self, number: int) -> None:
        """An optimizer is about to step: followers get its gradients."""
        self.settle()
        training = self._training
        if self._donor.followed and not training.is_local:
            groups = training.objects.optimizers[number].param_groups
            gradients = [p.grad for group in groups for p in group["params"]]
            options = training.objects.options(number)
            self._donor.update(number, options, self._pack(gradients))

    def stepped(self) -> None:
        """The loop body of a step is over, with what a script does after the step: followers get what
        else there is. With local steps no joiner follows."""
        training = self._training
        if not self._donor.followed or training.is_local:
            return
        objects = training.objects
        rest = {
            "buffers": objects.buffers(),
            "others": objects.capture_others(),
            "options": [objects.options(number) for number in range(len(objects.optimizers))],
        }
        self._donor.applied(training.applied, training.cursor, self._pack(rest))

    def cancel(self) -> None:
        """The state is to be replaced."""
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.cancel()

    def _pack(self, tree: Any) -> Packed:
        return state.pack(tree, self._memory())

    def _forget_memory(self) -> None:
        blocks, self._blocks = self._blocks, None
        if blocks is not None:
            # giving 120 MB back to the kernel takes 8 ms
            threads.start(blocks.clear, "shoal-blocks")

    def _memory(self) -> Blocks:
        if self._blocks is None:
            self._blocks = Blocks(self._training.reducer.layout.device)
        return self._blocks


def _steady(objects: Objects) -> list[torch.Tensor]:
    """All that changes only when an optimizer steps: parameters, and what optimizers keep of them."""
    parameters = [each for model in objects.models for each in model.parameters()]
    kept = [value for of in objects.optimizers for each in of.state.values() for value in each.values()]
    return [*parameters, *(value for value in kept if isinstance(value, torch.Tensor))]
