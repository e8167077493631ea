"""The gain of AdaScale: its bounds, its estimators, and the invariant step."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from shoal.elastic.optim.adascale import AdaScale, Noise, contribution, estimate, gain, smooth

positive = st.floats(1e-6, 1e6)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 4096), st.floats(1, 64))
def test_the_gain_lies_between_one_and_the_scale(
    variance: float, signal: float, reference: int, scale: float
) -> None:
    found = gain(Noise(variance, signal), reference, reference * scale)
    assert 1 - 1e-9 <= found <= scale + 1e-9


@given(positive, positive, st.floats(1, 64))
def test_the_gain_is_the_papers_formula(variance: float, signal: float, scale: float) -> None:
    of_batch = variance / 32
    expected = (of_batch + signal) / (of_batch / scale + signal)
    assert math.isclose(gain(Noise(variance, signal), 32, 32 * scale), expected, rel_tol=1e-9)


def test_where_nothing_is_known_or_everything_is_still_the_gain_is_one() -> None:
    assert gain(None, 32, 128) == 1.0
    assert gain(Noise(0.0, 0.0), 32, 128) == 1.0
    assert gain(Noise(-1.0, 4.0), 32, 128) == 1.0
    assert gain(Noise(1.0, -4.0), 32, 128) == pytest.approx(4.0)


@given(st.integers(2, 8), st.integers(1, 16), st.integers(0, 2**31))
def test_equal_parts_give_the_papers_estimates(ranks: int, each: int, seed: int) -> None:
    """Section 3.3: with S gradients of one batch each, s = (sum |g|^2 - S |mean|^2) / (S - 1) and
    m = |mean|^2 - s / S."""
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(ranks, 7, generator=generator, dtype=torch.float64)
    mean = gradients.mean(0)
    samples = ranks * each
    weighed = sum(
        contribution(float((g * each / samples).square().sum()), each / samples, each) for g in gradients
    )
    found = estimate(weighed, ranks, samples, float(mean.square().sum()))
    assert found is not None
    of_batch = float((gradients.square().sum() - ranks * mean.square().sum()) / (ranks - 1))
    signal = float(mean.square().sum()) - of_batch / ranks
    assert found.variance / each == pytest.approx(of_batch, rel=1e-9, abs=1e-12)
    assert found.signal == pytest.approx(signal, rel=1e-9, abs=1e-12)


def test_uneven_parts_are_estimated_without_bias() -> None:
    """Known noise, parts of 1, 3 and 12 samples: the mean of many estimates is the truth."""
    generator = torch.Generator().manual_seed(7)
    truth = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64)
    parts, runs = (1, 3, 12), 4000
    total = sum(parts)
    found: list[Noise] = []
    for _ in range(runs):
        grads = [
            truth + 2.0 * torch.randn(n, 3, generator=generator, dtype=torch.float64).mean(0)
            for n in parts
        ]
        weighted = [g * n / total for g, n in zip(grads, parts, strict=True)]
        weighed = sum(
            contribution(float(w.square().sum()), n / total, n)
            for w, n in zip(weighted, parts, strict=True)
        )
        whole = torch.stack(weighted).sum(0)
        seen = estimate(weighed, len(parts), total, float(whole.square().sum()))
        assert seen is not None
        found.append(seen)
    assert sum(n.variance for n in found) / runs == pytest.approx(3 * 4.0, rel=0.05)
    assert sum(n.signal for n in found) / runs == pytest.approx(float(truth.square().sum()), rel=0.05)


def test_one_part_or_a_gradient_that_is_not_finite_tells_nothing() -> None:
    assert estimate(4.0, 1, 32, 4.0) is None
    assert estimate(math.inf, 4, 32, 1.0) is None
    assert estimate(1.0, 4, 32, math.nan) is None
    assert contribution(3.0, 0.0, 0) == 0.0


def test_the_average_moves_by_the_scale_in_thousands() -> None:
    first, second = Noise(10.0, 1.0), Noise(20.0, 3.0)
    assert smooth(None, first, 4.0) == first
    moved = smooth(first, second, 100.0)
    assert (moved.variance, moved.signal) == (pytest.approx(11.0), pytest.approx(1.2))
    assert smooth(first, second, 2000.0) == second


def test_the_invariant_step_counts_gains() -> None:
    run = AdaScale(32)
    assert [run.applied(None, 32) for _ in range(3)] == [1, 1, 1]
    noise = Noise(32.0, 0.0)  # all noise: four times the batch is worth four steps
    assert [run.applied(noise, 128) for _ in range(2)] == [4, 4]
    assert run.step == 11
    half = AdaScale(32, Noise(32.0, 1.0))
    earned = [half.applied(Noise(32.0, 1.0), 128) for _ in range(11)]
    assert half.factor(128) == pytest.approx(1.6)
    assert sum(earned) == half.step == 17
    assert set(earned) == {1, 2}


def test_saved_and_loaded() -> None:
    run = AdaScale(32)
    run.applied(Noise(3.0, 2.0), 64)
    other = AdaScale(32)
    other.load_state_dict(run.state_dict())
    assert other == run
    fresh = AdaScale(32)
    fresh.load_state_dict(AdaScale(32).state_dict())
    assert fresh.noise is None
