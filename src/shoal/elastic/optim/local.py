"""Training alone for some steps, then agreeing: the state of local SGD and DiLoCo on one worker.

After each local step `stepped` is called. Every `every` steps it makes an exchange, through a call that
is handed in. What was agreed changes only in `apply`, which touches either everything or nothing: if the
group breaks before it, the parameters, local and agreed, are what they were, no local step is lost, and
the exchange is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shoal.elastic.optim.outer import Outer, outer_step, pseudo_gradient

__all__ = ["LocalSteps", "Sum"]

Sum = Callable[[torch.Tensor], Callable[[], None]]
"""Begins to add a tensor up over all workers, in place; calling what it gives waits for it, or
raises."""

_BUCKET_BYTES = 25 << 20


@dataclass
class _Exchange:
    total: torch.Tensor
    waits: list[Callable[[], None]]


class LocalSteps:
    """Of one set of parameters, the same on all workers at the start. Calls come from the training
    thread.

    `agreed` is what all workers have: fp32 for parameters in bf16 and fp16. Everybody must call the same
    in the same order, with the same steps.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        every: int,
        outer: Outer | None = None,
        *,
        bucket_bytes: int = _BUCKET_BYTES,
    ) -> None:
        """Parameters on one device."""
        self.parameters = list(parameters)
        self.every = every
        self.steps = 0
        self.agreements = 0
        self._outer = outer or Outer()
        self._bucket_bytes = bucket_bytes
        self.agreed: list[torch.Tensor] = [_precise(p) for p in self.parameters]
        self.velocity: list[torch.Tensor] = [torch.zeros_like(each) for each in self.agreed]
        self._exchange: _Exchange | None = None
        self._last: torch.Tensor | None = None

    @property
    def under_way(self) -> bool:
        """Whether an exchange has begun and is not applied."""
        return self._exchange is not None

    def stepped(self, weight: float, add_up: Sum) -> None:
        """A local step is done. `weight`: how much this worker counts in an exchange that begins now,
        such as its share of the samples; workers without any say 0.

        Raises whatever waiting raises; the exchange is then still under way: `again`, or `total` and
        `apply`, end it.
        """
        self.steps += 1
        if self.steps % self.every == 0:
            self.begin(weight, add_up)
            self.finish()

    def begin(self, weight: float, add_up: Sum) -> None:
        """Begin an exchange.

        Raises:
            RuntimeError: another exchange is under way.
        """
        if self._exchange is not None:
            raise RuntimeError("an exchange is under way")
        total = pseudo_gradient(self.agreed, [each.detach() for each in self.parameters], weight)
        exchange = self._exchange = _Exchange(total, [])
        count = max(1, self._bucket_bytes // total.element_size())
        # one at a time: if the second cannot begin, the first is awaited when the group is abandoned
        exchange.waits.extend(add_up(piece) for piece in torch.split(total, count))

    def again(self, weight: float, add_up: Sum) -> None:
        """In a new group: make the exchange that was under way once more, from the beginning."""
        if self.under_way:
            self._exchange = None
            self.begin(weight, add_up)

    def finish(self) -> None:
        """Wait for the exchange under way and apply it."""
        if self._exchange is not None:
            for wait in self._exchange.waits:
                wait()
            self.apply()

    def total(self) -> torch.Tensor | None:
        """The sums of the exchange under way, or of the last one applied: a worker that has applied it
        gives them to one that lacks them, which copies them into its own and calls `apply`."""
        return self._last if self._exchange is None else self._exchange.total

    def apply(self) -> None:
        """The exchange under way holds the sums: take the outer step, and go on from it.

        Raises:
            ValueError: the sums are not finite or of no rank; nothing is changed, and the exchange is
            over.
        """
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        self.agreed, self.velocity = outer_step(self.agreed, exchange.total, self.velocity, self._outer)
        self.adopt()
        self.agreements += 1
        self._last = exchange.total

    def adopt(self) -> None:
        """Go on from what was agreed: a worker that joins, or one with worthless parameters."""
        with torch.no_grad():
            for own, base in zip(self.parameters, self.agreed, strict=True):
                own.copy_(base)

    def state_dict(self) -> dict[str, Any]:
        """What all workers have, and the number of steps; an exchange under way is not part of it."""
        return {
            "agreed": list(self.agreed),
            "velocity": list(self.velocity),
            "steps": self.steps,
            "agreements": self.agreements,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` gave; own parameters are left alone (`adopt`).

        Raises:
            ValueError: it is of other parameters.
        """
        shapes = [each.shape for each in self.agreed]
        for name in ("agreed", "velocity"):
            if [each.shape for each in state[name]] != shapes:
                raise ValueError(f"the saved {name} parameters have other shapes than this model's")
        self._exchange = self._last = None
        self.agreed = _like(state["agreed"], self.agreed)
        self.velocity = _like(state["velocity"], self.velocity)
        self.steps = int(state["steps"])
        self.agreements = int(state["agreements"])


def _precise(parameter: torch.Tensor) -> torch.Tensor:
    low = parameter.dtype in (torch.bfloat16, torch.float16)
    return parameter.detach().to(torch.float32 if low else parameter.dtype, copy=True)


def _like(new: Sequence[torch.Tensor], old: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [a.to(b, copy=True) for a, b in zip(new, old, strict=True)]
