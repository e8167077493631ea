"""A factor around a step, beside torch's own schedulers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    StepLR,
)

from shoal.elastic.optim.policy import scaled

SCHEDULES: list[Callable[[torch.optim.Optimizer], LRScheduler]] = [
    lambda o: ExponentialLR(o, 0.9),
    lambda o: CosineAnnealingLR(o, 10),
    lambda o: StepLR(o, 3, 0.5),
    lambda o: LambdaLR(o, lambda step: 1 / (step + 1)),
    lambda o: OneCycleLR(o, 0.5, total_steps=20, cycle_momentum=False),
]


def weights() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["exp", "cosine", "step", "lambda", "cycle"])
def test_a_scheduler_sees_its_own_rates(
    schedule: Callable[[torch.optim.Optimizer], LRScheduler],
) -> None:
    """The run with factor f moves by f times what the run without it moves, at every step."""
    plain, grown = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in (plain, grown)]
    schedules = [schedule(optimizer) for optimizer in optimizers]
    for step in range(12):
        factor = 1.0 + step % 4
        moved: list[float] = []
        for parameter, optimizer, each in zip((plain, grown), optimizers, schedules, strict=True):
            before = parameter.item()
            parameter.grad = torch.ones(1)
            with scaled(optimizer, factor if parameter is grown else 1.0):
                optimizer.step()
            each.step()
            moved.append(parameter.item() - before)
        assert moved[1] == pytest.approx(factor * moved[0], rel=1e-4)
        assert optimizers[0].param_groups[0]["lr"] == optimizers[1].param_groups[0]["lr"]


def test_each_group_has_its_own_factor() -> None:
    first, second = weights()
    optimizer = torch.optim.SGD([{"params": [first], "lr": 0.1}, {"params": [second], "lr": 0.2}])
    with scaled(optimizer, [2.0, 1.0]):
        assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.2]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]
    with pytest.raises(ValueError, match="3 factors for 2"), scaled(optimizer, [1.0, 2.0, 3.0]):
        pass


def test_a_tensor_stays_the_same_tensor() -> None:
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD(weights(), lr=rate)
    with scaled(optimizer, 3.0):
        assert optimizer.param_groups[0]["lr"] is rate
        assert rate.item() == pytest.approx(0.3)
    assert rate.item() == pytest.approx(0.1)


def test_an_error_in_the_step_leaves_the_rates_alone() -> None:
    optimizer = torch.optim.SGD(weights(), lr=0.1)
    with pytest.raises(RuntimeError, match="out of memory"), scaled(optimizer, 3.0):
        raise RuntimeError("out of memory")
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_a_rate_set_within_is_kept() -> None:
    optimizer = torch.optim.SGD(weights(), lr=0.1)
    with scaled(optimizer, 3.0):
        optimizer.param_groups[0]["lr"] = 0.7
    assert optimizer.param_groups[0]["lr"] == 0.7
