"""What all workers of a job must have been given alike; one that was not gets an error at entry.

A worker with other data, another batch or another model would deal itself other samples than its peers
count on, or wait for sums that never come. `CommConfig`: the script's choices for communication and
batch size, fixed once the training has begun.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import nn

from shoal.elastic.codecs.catalogue import Plan
from shoal.elastic.errors import ElasticError
from shoal.elastic.local import LocalPlan
from shoal.elastic.optim.policy import Scale, Scaling

__all__ = ["CommConfig", "Terms", "described"]


@dataclass(frozen=True)
class Terms:
    """`loop`: which loop over `job.shards` of the script this is, from 0: what was given to different
    loops may differ. `samples`: of the dataset. Models, optimizers and others are as `described`
    says; `travel`: how what is learned goes from one to another; `scale`: what becomes of
    the batch."""

    loop: int
    samples: int
    batch_size: int
    epochs: int
    seed: int
    shuffle: bool
    accumulate: int
    models: str
    optimizers: str
    others: str
    travel: str
    scale: str

    def to_wire(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    def digests(self) -> tuple[int, int]:
        """What is wrapped, and what this loop was given, as numbers below 2**48."""
        wrapped = (self.models, self.optimizers, self.others, self.travel, self.scale)
        given = (self.samples, self.batch_size, self.epochs, self.seed, self.shuffle, self.accumulate)
        return _number(wrapped), _number(given)

    def check(self, theirs: Mapping[str, Any]) -> None:
        """Compare with what a member of the job was given.

        Raises:
            ElasticError: this worker cannot train with it.
        """
        always = ("models", "optimizers", "others", "travel", "scale")
        names = [each.name for each in fields(self) if each.name != "loop"]
        if self.loop != theirs["loop"]:
            names = list(always)
        differing = [name for name in names if getattr(self, name) != theirs[name]]
        if differing:
            said = ", ".join(f"{_WORDS[n]} {getattr(self, n)} (theirs: {theirs[n]})" for n in differing)
            raise ElasticError(
                f"this worker was given something else than the job's other workers: {said}; all must "
                "run the same script on the same data"
            )

    def resume(self, kept: Mapping[str, Any]) -> str | None:
        """What to print when training goes on in the middle of an epoch that a checkpoint with
        these terms had begun; None when nothing is amiss."""
        names = ("samples", "seed", "shuffle")
        differing = [name for name in names if getattr(self, name) != kept[name]]
        if not differing:
            return None
        said = ", ".join(f"{_WORDS[n]} {getattr(self, n)} (then: {kept[n]})" for n in differing)
        return (
            f"the checkpoint was taken amid an epoch with other data: {said}; samples of that "
            "epoch may be learned twice, or not at all"
        )


_WORDS = {
    "samples": "a dataset of length",
    "batch_size": "batch_size",
    "epochs": "epochs",
    "seed": "seed",
    "shuffle": "shuffle",
    "accumulate": "accumulate",
    "models": "model",
    "optimizers": "optimizer",
    "scale": "with more workers a batch that is",
    "travel": "gradients that travel as",
    "others": "schedulers and the like",
}


def described(
    models: list[nn.Module], optimizers: list[torch.optim.Optimizer], others: list[Any]
) -> tuple[str, str, str]:
    """Models, optimizers and others in a few words, equal for equal ones: classes, and for models the
    names, shapes and types of all that they hold, condensed."""
    return (
        ", ".join(map(_model, models)),
        ", ".join(map(_optimizer, optimizers)),
        ", ".join(type(each).__name__ for each in others) or "none",
    )


def _model(model: nn.Module) -> str:
    held = [*model.named_parameters(), *model.named_buffers()]
    lines = [f"{name} {tuple(t.shape)} {t.dtype} {t.requires_grad}" for name, t in held]
    short = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:6]
    elements = sum(tensor.numel() for _, tensor in held)
    return f"{type(model).__name__} of {elements:,} values in {len(held)} tensors (#{short})"


def _optimizer(optimizer: torch.optim.Optimizer) -> str:
    counts = "+".join(str(len(group["params"])) for group in optimizer.param_groups)
    return f"{type(optimizer).__name__} of {counts} parameters"


def _number(data: tuple[object, ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(data).encode()).digest()[:6])


class CommConfig:
    """Of one process; the same on every worker of a job. `settled`: training has begun, nothing can be
    chosen any more.

    `plan`: how gradients are exchanged; `local`: with `mode="local"`, what is exchanged in their stead;
    `scaling`: how batch and learning rate follow the number of workers.
    """

    def __init__(self) -> None:
        self.settled = False
        self.plan = Plan()
        self.local: LocalPlan | None = None
        self.scaling: Scaling | None = None

    def travel(self, plan: Plan | LocalPlan) -> None:
        """Choose how gradients, or local steps, are exchanged.

        Raises:
            ElasticError: the training has begun.
        """
        if self.settled:
            raise ElasticError("job.wrap() with codec=, bucket= or mode= comes before job.shards()")
        if isinstance(plan, LocalPlan):
            self.local = plan
        else:
            self.plan = plan

    def scale(self, policy: Scale | None, samples: int) -> Scaling | None:
        """Apply `policy` to batches of `samples`; None: the batch is kept. Returns the new scaling, or
        None if there is none or it was set before.

        Raises:
            ElasticError: another policy was set before.
        """
        if self.settled:
            if policy != (self.scaling.policy if self.scaling is not None else None):
                raise ElasticError("job.shards(scale=...) must be the same in all loops of a script")
            return None
        if policy is None:
            return None
        self.scaling = Scaling(policy, samples)
        return self.scaling

    @property
    def words(self) -> tuple[str, str]:
        """The exchange and the batch policy in words: equal for equal configurations."""
        batch = str(self.scaling.policy) if self.scaling is not None else "kept"
        return str(self.local or self.plan), batch
