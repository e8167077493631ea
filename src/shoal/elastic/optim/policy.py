"""The global batch and the learning rate when the number of workers changes.

`Scale` lets the batch grow with the world size and multiplies the rate by a rule's factor, which it
reaches gradually; without a policy both stay. It is plain data and gives the same on every rank.

- linear, and the gradual warm-up: Goyal and others, "Accurate, Large Minibatch SGD: Training ImageNet in
  1 Hour", 2017, arXiv 1706.02677, sections 2.1 and 2.2
- square root, which keeps the variance of a step: Krizhevsky, "One weird trick for parallelizing
  convolutional neural networks", 2014, arXiv 1404.5997, section 5; advised for adaptive optimizers by
  You and others, arXiv 1904.00962

`scaled` applies the factor around one optimizer step. Schedulers keep the learning rate in
`param_groups`, and some compute the next from what they find there: between steps it must be theirs, or
the factor would be multiplied in again at each step.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

__all__ = ["Ramp", "Rule", "Scale", "Scaling", "linear", "root", "scaled"]


def linear(scale: float) -> float:
    """k times the batch, k times the rate."""
    return _positive(scale)


def root(scale: float) -> float:
    """k times the batch, sqrt(k) times the rate."""
    return math.sqrt(_positive(scale))


@dataclass(frozen=True)
class Ramp:
    """A factor on its way: from `start` at `step` to whatever is aimed for `steps` later, in a straight
    line. `steps` 0: there at once."""

    start: float = 1.0
    step: int = 0
    steps: int = 0

    def at(self, step: int, aim: float) -> float:
        """The factor of this step; of a step before the ramp, its start."""
        if self.steps <= 0:
            return aim
        way = min(max((step - self.step) / self.steps, 0.0), 1.0)
        return aim if way == 1.0 else self.start + (aim - self.start) * way

    def turn(self, step: int, aim: float) -> Ramp:
        """A new ramp of the same length, from where this one, with this aim, stands."""
        return Ramp(self.at(step, aim), step, self.steps)


def _positive(scale: float) -> float:
    if not scale > 0 or not math.isfinite(scale):
        raise ValueError(f"a batch {scale} times as large is no batch")
    return scale


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


Rule = Literal["linear", "sqrt"]


@dataclass(frozen=True)
class Scale:
    """The global batch grows with the world; `batch_size` is that of `reference` workers.

    `rule` gives the factor of the learning rate; `warmup` is the number of steps in which a new factor
    is reached.

    Raises:
        ValueError: no such rule, or a value that is not positive.
    """

    rule: Rule = "linear"
    reference: int = 1
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.rule not in ("linear", "sqrt"):
            removed = " (adascale was removed)" if self.rule == "adascale" else ""
            raise ValueError(f"rule {self.rule!r}: there are linear and sqrt{removed}")
        if self.reference < 1 or self.warmup < 0:
            raise ValueError(
                f"reference {self.reference} must be positive, warmup {self.warmup} not negative"
            )

    def batch(self, samples: int, world: int) -> int:
        """The global batch of `world` workers, `samples` being that of `reference`; at least one."""
        return max(1, round(samples * world / self.reference))


@dataclass
class Scaling:
    """A policy in a run: which factor the next step's learning rate gets.

    Call `world_is` when the view changes and `factor` before each applied step, with the same
    numbers on every rank. `samples`: the batch that the rate was chosen for. Not thread-safe.
    """

    policy: Scale
    samples: int
    world: int = 0
    ramp: Ramp = field(default_factory=Ramp)

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"a batch of {self.samples} samples is no batch")
        self.ramp = Ramp(steps=self.policy.warmup)

    @property
    def batch(self) -> int:
        """The global batch now."""
        return self.policy.batch(self.samples, max(self.world, 1))

    def world_is(self, world: int, step: int) -> None:
        """From `step` on there are `world` workers: a changed number begins a new ramp."""
        if world < 1:
            raise ValueError(f"a world of {world} workers")
        if world == self.world:
            return
        if self.world:
            self.ramp = self.ramp.turn(step, self._aim())
        else:
            self.ramp = Ramp(1.0, step, self.ramp.steps)
        self.world = world

    def factor(self, step: int) -> float:
        """By which the learning rate of this step is multiplied."""
        return self.ramp.at(step, self._aim())

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers; the policy is the script's."""
        return {
            "world": self.world,
            "ramp": [self.ramp.start, self.ramp.step],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` gave, of this or another policy."""
        self.world = int(state["world"])
        start, step = state["ramp"]
        self.ramp = Ramp(float(start), int(step), self.ramp.steps)

    def _aim(self) -> float:
        scale = self.batch / self.samples
        return linear(scale) if self.policy.rule == "linear" else root(scale)
