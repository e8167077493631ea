"""The weights are the costates of the fluid problem; where its answer is known, they are that."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.sizing.curves import concave, from_nothing
from shoal.schedule.sizing.weights import weights


def most_of(curves, weight, capacity):
    """The most that the jobs can make of the capacity: all steps, the densest first."""
    widths = np.diff(curves.grid, prepend=0)
    density = weight[:, None] * np.diff(from_nothing(curves), axis=1, prepend=0.0) / widths
    left, made = float(capacity), 0.0
    for each, width in sorted(
        zip(density.ravel(), np.tile(widths, len(weight)), strict=True), key=lambda pair: -pair[0]
    ):
        used = min(left, width)
        made += used * each
        left -= used
    return made


@pytest.mark.parametrize("power", [0.3, 0.5, 0.8])
def test_equal_powers_of_the_size_give_the_weights_of_hesrpt(power):
    grid = np.unique(np.geomspace(1, 100_000, 400).astype(np.int64))
    curves = concave(grid, np.tile(grid.astype(np.float64) ** power, (5, 1)))
    found = weights(curves, range(5), 100_000, patience=0.0)
    rank = np.arange(1, 6)
    root = 1 / (1 - power)
    expected = (rank**root - (rank - 1.0) ** root) ** (1 - power)
    assert found / found[0] == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.05, 4.0), min_size=4, max_size=4), min_size=1, max_size=8),
    st.integers(8, 64),
)
def test_whichever_jobs_are_left_pay_one_second_for_each(rises, capacity):
    grid = np.array([1, 2, 4, 8])
    values = np.cumsum(np.array(rises), axis=1)
    curves = concave(grid, values)
    found = weights(curves, range(len(rises)), capacity, patience=0.0)
    for left in range(1, len(rises) + 1):
        some = concave(grid, values[:left])
        assert most_of(some, found[:left], capacity) == pytest.approx(left, rel=1e-6)


def test_who_ends_sooner_weighs_more():
    grid = np.array([1, 2, 4, 8])
    curves = concave(grid, np.tile([1.0, 1.8, 3.0, 4.5], (20, 1)))
    found = weights(curves, range(20), 16)
    assert (np.diff(found) > 0).all()


def test_a_sample_stands_for_very_many(monkeypatch):
    """Who is behind many others has about the weight that it has where each is looked at."""
    grid = np.array([1, 2, 4, 8, 16])
    power = np.random.default_rng(0).uniform(0.4, 0.9, (300, 1))
    curves = concave(grid, grid**power)
    sampled = weights(curves, range(300), 1500)
    monkeypatch.setattr("shoal.schedule.sizing.weights._EACH", 300)
    each = weights(curves, range(300), 1500)
    assert sampled[:32].tolist() == each[:32].tolist()
    off = np.abs(sampled / each - 1)
    assert 0 < np.median(off) < 0.02 and np.quantile(off, 0.95) < 0.1
