"""Local SGD and DiLoCo: workers train alone for some steps, then agree in an outer step.

What a worker has done since the last agreement is a pseudo-gradient: the agreed parameters minus its
own. Its average over the workers is handed to an outer optimizer, which moves the agreed parameters.

- Stich, "Local SGD Converges Fast and Communicates Little", 2018, arXiv 1805.09767: rate 1 and no
  momentum, which is the mean of the workers' parameters (`AVERAGE`)
- Douillard and others, "DiLoCo: Distributed Low-Communication Training of Language Models", 2023,
  arXiv 2311.08105: SGD with Nesterov's momentum, rate 0.7, momentum 0.9 (the default)

After each local step `stepped` is called. Every `every` steps it makes an exchange, through a call that
is handed in. What was agreed changes only in `apply`, which touches either everything or nothing: if the
group breaks before it, the parameters, local and agreed, are what they were, no local step is lost, and
the exchange is made again. The functions of the outer step are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["AVERAGE", "LocalSteps", "Outer", "Sum", "outer_step", "pseudo_gradient"]


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
