"""What becomes of the global batch and of the learning rate when the number of workers changes.

`Fixed` keeps both. `Scale` lets the batch grow with the world and multiplies the rate by a rule's
factor, which it reaches gradually. Both are plain data and give the same on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from shoal.elastic.optim import rules
from shoal.elastic.optim.rules import Ramp

__all__ = ["Fixed", "Policy", "Rule", "Scale", "Scaling"]

Rule = Literal["linear", "sqrt"]


@dataclass(frozen=True)
class Fixed:
    """The global batch is the same at every world size, and so is the learning rate."""

    def batch(self, samples: int, world: int) -> int:
        """The global batch of `world` workers, `samples` being what the script asked for."""
        return samples


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


Policy = Fixed | Scale


@dataclass
class Scaling:
    """A policy in a run: which factor the next step's learning rate gets.

    Call `world_is` when the view changes and `factor` before each applied step, with the same
    numbers on every rank. `samples`: the batch that the rate was chosen for. Not thread-safe.
    """

    policy: Policy
    samples: int
    world: int = 0
    ramp: Ramp = field(default_factory=Ramp)

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"a batch of {self.samples} samples is no batch")
        if isinstance(self.policy, Scale):
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
        if isinstance(self.policy, Fixed):
            return 1.0
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
        policy = self.policy
        if isinstance(policy, Fixed):
            return 1.0
        scale = self.batch / self.samples
        return rules.linear(scale) if policy.rule == "linear" else rules.root(scale)
