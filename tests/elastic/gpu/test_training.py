"""Two ranks that share a device, with autocast and scaled gradients, are one with the whole batch."""

from __future__ import annotations

import copy

import pytest
import torch

from shoal.elastic.allreduce.group import Group
from shoal.elastic.codecs.catalogue import Plan
from tests.elastic.allreduce.team import Rank, groups, together
from tests.elastic.gpu.devices import DEVICES

pytestmark = pytest.mark.slow

STEPS = 12
BATCH = 24
SHARES = (15, 9)


def network(device: str) -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    ).to(device)


def batches(device: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(6)
    return [
        (torch.randn(BATCH, 32).to(device), torch.randint(8, (BATCH,)).to(device)) for _ in range(STEPS)
    ]


class Trainer:
    """What a script does: autocast, a scaler, clipping."""

    def __init__(self, model: torch.nn.Module, device: str, half: torch.dtype | None) -> None:
        self.model = model
        self.device = device
        self.half = half
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=5)

    def loss(self, inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device, self.half or torch.bfloat16, enabled=self.half is not None):
            loss = torch.nn.functional.cross_entropy(self.model(inputs), wanted)
        return self.scaler.scale(loss)

    def apply(self) -> None:
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def alone(device: str, half: torch.dtype | None) -> Trainer:
    trainer = Trainer(network(device), device, half)
    for inputs, wanted in batches(device):
        trainer.optimizer.zero_grad()
        trainer.loss(inputs, wanted).backward()
        trainer.apply()
    return trainer


def of_two(device: str, half: torch.dtype | None) -> list[Trainer]:
    built = groups(2)
    models = [network(device), network(device)]
    trainers = [Trainer(model, device, half) for model in models]
    ranks = [Rank(model, Plan()) for model in models]
    given = batches(device)  # not in the threads: they share one generator

    def train(group: Group) -> None:
        trainer, rank = trainers[group.rank], ranks[group.rank]
        first = sum(SHARES[: group.rank])
        for inputs, wanted in given:
            mine = slice(first, first + SHARES[group.rank])
            rank.step(group, trainer.loss(inputs[mine], wanted[mine]), SHARES[group.rank], BATCH)
            assert rank.failed is None
            trainer.apply()

    together([lambda group=group: train(group) for group in built])
    for group in built:
        group.close()
    return trainers


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("half", [None, torch.bfloat16, torch.float16])
def test_two_ranks_are_one(device: str, half: torch.dtype | None):
    whole = alone(device, half)
    first, second = of_two(device, half)
    for one, other, expected in zip(
        first.model.parameters(), second.model.parameters(), whole.model.parameters(), strict=True
    ):
        assert torch.equal(one, other)
        assert one.device.type == device
        tolerance = 1e-4 if half is None else 5e-2
        torch.testing.assert_close(one, expected, rtol=tolerance, atol=tolerance)
    assert first.scaler.state_dict() == second.scaler.state_dict() == whole.scaler.state_dict()


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_that_overflows_is_left_out_by_all(device: str):
    """What one rank's scaler sees, the other's does: they look at the same sums."""
    built = groups(2)
    models = [network(device), network(device)]
    before = copy.deepcopy(models[0].state_dict())
    trainers = [Trainer(model, device, None) for model in models]
    ranks = [Rank(model, Plan()) for model in models]
    (inputs, wanted), *_ = batches(device)

    def train(group: Group) -> None:
        trainer, rank = trainers[group.rank], ranks[group.rank]
        loss = trainer.loss(inputs, wanted) * (float("inf") if group.rank else 1.0)
        rank.step(group, loss, BATCH // 2, BATCH)
        trainer.apply()

    together([lambda group=group: train(group) for group in built])
    for group in built:
        group.close()
    assert {trainer.scaler.get_scale() for trainer in trainers} == {2.0**9}
    for model in models:
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_and_control_vector_are_on_the_device(device: str):
    rank = Rank(network(device), Plan())
    layout = rank.reducer.layout
    assert layout.device.type == device
    assert all(bucket.flat.device.type == device for bucket in layout.buckets)
    assert layout.control.device.type == device
