"""The best sizes of all, against trying every combination, and asked twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.sizing.choose import Demand, choose
from shoal.schedule.sizing.curves import concave, every_size
from shoal.schedule.sizing.exact import best


@pytest.mark.parametrize("seed", range(20))
def test_no_combination_earns_more(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, 6, (4, 3))
    earned = np.where(draw.random((4, 3)) < 0.2, -np.inf, draw.normal(size=(4, 3)))
    capacity = int(draw.integers(4, 18))
    values = [
        sum(earned[job, option] for job, option in enumerate(options))
        for options in itertools.product(range(3), repeat=4)
        if sum(sizes[job, option] for job, option in enumerate(options)) <= capacity
    ]
    most = max(values, default=-np.inf)
    found = best(sizes, earned, capacity)
    if most == -np.inf:
        assert found is None
        return
    assert found is not None
    assert found.sum() <= capacity
    got = [max(earned[job][sizes[job] == size]) for job, size in enumerate(found)]
    assert sum(got) == pytest.approx(most)


def _demand(speeds: list[list[float]], remaining: list[float], current: list[int]) -> Demand:
    grid = every_size(4, len(speeds[0]))
    values = np.maximum.accumulate(np.array(speeds), axis=1)
    return Demand(
        curves=concave(grid, values),
        weight=np.arange(1, len(speeds) + 1) / 10,
        current=np.array(current, dtype=np.int64),
        remaining=np.array(remaining),
        restart=np.full(len(speeds), 3.0),
    )


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.lists(st.floats(0.5, 9), min_size=8, max_size=8), st.floats(1, 500), st.integers(1, 4)
        ),
        min_size=2,
        max_size=5,
    ),
    st.integers(0, 12),
)
@settings(max_examples=150, deadline=None)
def test_asked_again_nothing_changes(jobs: list[tuple[list[float], float, int]], more: int) -> None:
    speeds, remaining, current = ([job[at] for job in jobs] for at in range(3))
    capacity = sum(current) + more
    first = choose(_demand(speeds, remaining, current), capacity, 60.0, steady=True)
    again = choose(_demand(speeds, remaining, first.tolist()), capacity, 60.0, steady=True)
    assert again.tolist() == first.tolist()
    assert first.sum() <= capacity


def test_of_many_nobody_changes_for_next_to_nothing() -> None:
    """So many that a price decides: what it says is kept as long as little can be gained."""
    draw = np.random.default_rng(1)
    count, most = 400, 64
    speeds = (np.arange(1, most + 1) ** draw.uniform(0.3, 0.95, (count, 1))).tolist()
    remaining = draw.uniform(50, 5000, count).tolist()
    sizes = [1] * count

    def demand(current: list[int]) -> Demand:
        grid = every_size(8, most)
        values = np.array(speeds)[:, grid - 1]
        return Demand(
            concave(grid, values),
            np.linspace(0.1, 0.2, count),
            np.array(current, dtype=np.int64),
            np.array(remaining),
            np.full(count, 10.0),
        )

    first = choose(demand(sizes), 1600, 200.0, steady=True)
    assert 1500 < first.sum() <= 1600
    again = choose(demand(first.tolist()), 1600, 200.0, steady=True)
    assert again.tolist() == first.tolist()
