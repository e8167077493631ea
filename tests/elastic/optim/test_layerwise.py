"""LARS against the published rule, and what low precision, loading and odd layers do."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from shoal.elastic.optim import LARS
from tests.elastic.optim.reference import Lars

Make = Callable[[Any], torch.optim.Optimizer]


def make(parameters: Any) -> LARS:
    return LARS(parameters, 0.1, weight_decay=0.01, trust_coefficient=0.02)


SHAPES = [(3, 4), (5,), (2, 3, 2), (1,)]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[torch.Tensor], list[list[torch.Tensor]], list[float]]:
    """Layers in fp64, gradients of some steps, and a rate for each step; zeros are as likely as not."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4))
    size = st.sampled_from([0.0, 1e-6, 1.0, 1e3])

    def tensor(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64) * draw(size)

    layers = [tensor(shape) for shape in shapes]
    steps = draw(st.integers(1, 5))
    gradients = [[tensor(shape) for shape in shapes] for _ in range(steps)]
    rates = draw(st.lists(st.sampled_from([1e-3, 0.1, 1.0]), min_size=steps, max_size=steps))
    return layers, gradients, rates


def run(
    optimizer: torch.optim.Optimizer,
    layers: list[torch.Tensor],
    gradients: list[list[torch.Tensor]],
    rates: list[float],
) -> None:
    for step, rate in zip(gradients, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for layer, gradient in zip(layers, step, strict=True):
            layer.grad = gradient.to(layer.dtype)
        optimizer.step()


def close(layer: torch.Tensor, weights: list[float]) -> None:
    expected = torch.tensor(weights, dtype=torch.float64)
    torch.testing.assert_close(layer.detach().flatten(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@given(
    problems(),
    st.sampled_from([0.0, 0.9]),
    st.sampled_from([0.0, 0.05]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_lars_is_algorithm_1(
    problem: tuple[list[torch.Tensor], list[list[torch.Tensor]], list[float]],
    momentum: float,
    decay: float,
    adapt: bool,
) -> None:
    layers, gradients, rates = problem
    expected = [Lars(x.flatten().tolist(), momentum, decay, 0.001, adapt) for x in layers]
    for step, rate in zip(gradients, rates, strict=True):
        for layer, gradient in zip(expected, step, strict=True):
            layer.step(gradient.flatten().tolist(), rate)
    optimizer = LARS(layers, 1.0, momentum=momentum, weight_decay=decay)
    optimizer.param_groups[0]["adapt"] = adapt
    run(optimizer, layers, gradients, rates)
    for layer, reference in zip(layers, expected, strict=True):
        close(layer, reference.weights)


def test_a_layer_of_zeros_leaves_zero() -> None:
    layer = nn.Parameter(torch.zeros(4))
    layer.grad = torch.ones(4)
    make([layer]).step()
    assert bool((layer < 0).all())
    assert bool(torch.isfinite(layer).all())


def test_nothing_moves_where_nothing_pulls() -> None:
    layer = nn.Parameter(torch.zeros(4))
    layer.grad = torch.zeros(4)
    make([layer]).step()
    assert layer.tolist() == [0.0] * 4


def test_a_parameter_without_a_gradient_neither_decays_nor_counts() -> None:
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = make([used, unused])
    used.grad = torch.ones(3)
    optimizer.step()
    assert unused.tolist() == [1.0] * 3
    assert unused not in optimizer.state


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_follows_the_fp32_run(dtype: torch.dtype) -> None:
    """Steps far smaller than a bf16 number's last place add up on the fp32 copy."""
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(64, 32, generator=generator).to(dtype)
    low, full = nn.Parameter(start.clone()), nn.Parameter(start.float())
    steps = [make([low]), make([full])]
    for optimizer in steps:
        optimizer.param_groups[0]["lr"] = 1e-4
    for _ in range(50):
        gradient = (torch.randn(64, 32, generator=generator) + 1).to(dtype)
        low.grad, full.grad = gradient.clone(), gradient.float()
        for optimizer in steps:
            optimizer.step()
    assert torch.equal(low.detach(), full.detach().to(dtype))
    assert not torch.equal(low.detach(), start)


def test_gradients_whose_squares_overflow_fp16_do_no_harm() -> None:
    layer = nn.Parameter(torch.ones(8, dtype=torch.float16))
    layer.grad = torch.full((8,), 60000.0, dtype=torch.float16)
    optimizer = make([layer])
    optimizer.step()
    assert bool(torch.isfinite(layer).all())
    assert all(
        bool(torch.isfinite(each).all()) and each.dtype in (torch.float32, torch.int64)
        for each in optimizer.state[layer].values()
    )


def test_a_parameter_loaded_from_elsewhere_is_stepped_from_there() -> None:
    layer = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    optimizer = make([layer])
    layer.grad = torch.ones_like(layer)
    optimizer.step()
    with torch.no_grad():
        layer[:4] = 100.0
    optimizer.step()
    assert bool((layer[:4] > 90).all())
    assert bool((layer[4:] < 2).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_run_that_is_saved_and_loaded_is_the_run(dtype: torch.dtype) -> None:
    def some(seed: int) -> torch.Tensor:
        return torch.randn(16, 8, generator=torch.Generator().manual_seed(seed)).to(dtype)

    through = nn.Parameter(some(0))
    optimizer = make([through])
    for step in range(3):
        through.grad = some(step + 1)
        optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = nn.Parameter(through.detach().clone())
    other = make([resumed])
    other.load_state_dict(torch.load(file, weights_only=True))
    for step in range(3, 6):
        for layer, each in ((through, optimizer), (resumed, other)):
            layer.grad = some(step + 1)
            each.step()
    assert torch.equal(through, resumed)
    for name, value in optimizer.state[through].items():
        assert torch.equal(value, other.state[resumed][name])
        assert value.dtype == other.state[resumed][name].dtype


def test_a_copied_optimizer_steps_alike() -> None:
    layer = nn.Parameter(torch.ones(4, 4))
    optimizer = make([layer])
    layer.grad = torch.ones(4, 4)
    optimizer.step()
    twin = copy.deepcopy(optimizer)
    other = twin.param_groups[0]["params"][0]
    other.grad = torch.ones(4, 4)
    optimizer.step()
    twin.step()
    assert torch.equal(layer, other)


def test_a_rate_that_is_a_tensor() -> None:
    layers = [nn.Parameter(torch.ones(4)) for _ in range(2)]
    for layer, rate in zip(layers, (0.05, torch.tensor(0.05)), strict=True):
        optimizer = make([layer])
        optimizer.param_groups[0]["lr"] = rate
        layer.grad = torch.arange(4.0)
        optimizer.step()
    torch.testing.assert_close(*layers)


def test_sparse_and_complex_are_refused() -> None:
    embedding = nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="dense gradients"):
        make(embedding.parameters()).step()
    layer = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    layer.grad = torch.ones_like(layer)
    with pytest.raises(RuntimeError, match="real parameters"):
        make([layer]).step()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda p: LARS(p, -1.0),
        lambda p: LARS(p, 1.0, momentum=1.0),
        lambda p: LARS(p, 1.0, trust_coefficient=0.0),
    ],
)
def test_values_out_of_range_are_refused(wrong: Make) -> None:
    with pytest.raises(ValueError, match="must"):
        wrong([nn.Parameter(torch.ones(2))])


def test_groups_that_are_not_adapted_take_plain_steps() -> None:
    """As for vectors (biases, normalisation), without weight decay."""
    layer = nn.Parameter(torch.full((4,), 3.0))
    optimizer = LARS([{"params": [layer], "weight_decay": 0.0, "adapt": False}], 0.1, momentum=0.0)
    layer.grad = torch.ones(4)
    optimizer.step()
    torch.testing.assert_close(layer.detach(), torch.full((4,), 2.9))


def test_a_closure_is_run_with_gradients() -> None:
    layer = nn.Parameter(torch.ones(2))
    optimizer = make([layer])

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (layer**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2.0
    assert layer.detach().square().sum().item() < 2.0
