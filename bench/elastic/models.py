"""The models and their data: the same for every system. Imports torch.

- `mlp`: 256-512-10, 137,000 parameters; a step is paced by a sleep that stands for computing.
- `wide`: `Linear(256, 40000)`, 41 MB of gradients: a step is mostly the allreduce.
- `wider`: 256 MiB of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.utils.data import TensorDataset

from bench.elastic.settings import WIDTHS, Settings

__all__ = ["Samples", "Trained", "loss_of", "model_of", "optimizer_of", "take"]

Batch = Sequence[Tensor]
"""Three: inputs (b, 256), labels (b,), and the samples' numbers (b,)."""


class Samples(TensorDataset):
    """Random inputs and labels that a fixed random teacher gives; item i is (256,), (), ()."""

    def __init__(self, settings: Settings) -> None:
        random = torch.Generator().manual_seed(settings.seed)
        kind = torch.float64 if settings.double else torch.float32
        self.inputs = torch.randn(settings.samples, 256, generator=random).to(kind)
        teacher = torch.randn(256, 10, generator=random).to(kind)
        self.labels = (self.inputs @ teacher).argmax(1)
        super().__init__(self.inputs, self.labels, torch.arange(settings.samples))


class Trained(nn.Module):
    """The model of the settings; with `count`, also one number per sample."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        torch.manual_seed(settings.seed)
        if settings.model == "mlp":
            self.body = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
        else:
            self.body = nn.Sequential(nn.Linear(256, WIDTHS[settings.model], bias=False))
        self.counts = nn.Parameter(torch.zeros(settings.samples)) if settings.count else None
        if settings.double:
            self.double()

    def forward(self, inputs: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor | None]:
        """The body's output (b, classes), and the samples' counts (b,) if there are any."""
        return self.body(inputs), None if self.counts is None else self.counts[numbers]


def model_of(settings: Settings) -> Trained:
    """A new model, on one thread; the same parameters in every process."""
    torch.set_num_threads(1)
    return Trained(settings)


def optimizer_of(settings: Settings, model: Trained) -> Optimizer:
    """SGD or Adam for the body.

    Counts are trained by plain SGD with a rate that makes each use of a sample in a batch of the
    settings' size change its number by -1: the loss is a mean, so its gradient is 1 / batch.
    """
    groups: list[dict[str, object]] = [{"params": list(model.body.parameters())}]
    if model.counts is not None:
        groups.append({"params": [model.counts], "lr": float(settings.batch), "momentum": 0.0})
    if settings.adam:
        return Adam(groups, lr=1e-3)
    return SGD(groups, lr=0.05 if settings.model == "mlp" else 1e-3, momentum=0.9)


def loss_of(model: nn.Module, batch: Batch, settings: Settings) -> Tensor:
    """The mean over the batch, (): cross entropy or a square, plus the counts."""
    inputs, labels, numbers = batch
    output, counts = cast("tuple[Tensor, Tensor | None]", model(inputs, numbers))
    loss = (
        nn.functional.cross_entropy(output, labels)
        if settings.model == "mlp"
        else output.square().mean()
    )
    return loss if counts is None else loss + counts.mean()


def take(samples: Samples, settings: Settings, step: int, rank: int, world: int) -> Batch:
    """A rank's part of a step's batch for the systems that leave data to the user: a random draw."""
    random = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    chosen = torch.randint(len(samples), (settings.batch,), generator=random)
    mine = chosen[rank::world] if rank < settings.batch else chosen[:1]
    return samples.inputs[mine], samples.labels[mine], mine
