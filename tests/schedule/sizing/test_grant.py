from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.sizing.curves import concave
from shoal.schedule.sizing.damping import damp
from shoal.schedule.sizing.grant import grant


@settings(max_examples=80)
@given(st.data())
def test_on_sizes_one_apart_nothing_makes_more_of_the_weights(data):
    count, capacity = data.draw(st.integers(1, 4)), data.draw(st.integers(4, 9))
    grid = np.array([1, 2, 3, 4])
    rises = data.draw(
        st.lists(
            st.lists(st.floats(0.01, 2.0), min_size=4, max_size=4).map(
                lambda r: sorted(r, reverse=True)
            ),
            min_size=count,
            max_size=count,
        )
    )
    weight = np.array(data.draw(st.lists(st.floats(0.1, 5.0), min_size=count, max_size=count)))
    curves = concave(grid, np.cumsum(np.array(rises), axis=1))
    sizes = grant(curves, weight, capacity)

    def worth(choice):
        return sum(weight[job] * curves.speed[job, size - 1] for job, size in enumerate(choice))

    best = max(worth(c) for c in product(range(1, 5), repeat=count) if sum(c) <= capacity)
    assert sizes.sum() <= capacity
    assert worth(sizes.tolist()) == pytest.approx(best)


def test_the_greatest_weights_run_where_not_all_can():
    curves = concave(np.array([1, 2]), np.tile([1.0, 1.5], (3, 1)))
    assert grant(curves, np.array([1.0, 3.0, 2.0]), 2).tolist() == [0, 1, 1]


def test_a_step_too_large_leaves_the_rest_to_others():
    grid = np.array([1, 2, 4])
    curves = concave(grid, np.array([[1.0, 2.0, 4.0], [1.0, 1.1, 1.2]]))
    assert grant(curves, np.array([1.0, 1.0]), 4).tolist() == [2, 2]


def test_nothing_grows_for_less_than_its_restart():
    curves = concave(np.array([1, 2, 4]), np.tile([1.0, 2.0, 4.0], (2, 1)))
    cost = np.array([30.0, 30.0])
    remaining = np.array([100.0, 1000.0])
    sizes = damp(curves, np.array([4, 4]), np.array([2, 2]), remaining, 8, cost, eager=3.0)
    assert sizes.tolist() == [2, 4]


def test_nobody_shrinks_for_nobody():
    curves = concave(np.array([1, 2, 4]), np.tile([1.0, 2.0, 4.0], (2, 1)))
    cost, remaining = np.full(2, 30.0), np.array([500.0, 400.0])
    sizes = damp(curves, np.array([1, 1]), np.array([4, 4]), remaining, 8, cost)
    assert sizes.tolist() == [4, 4]
    sizes = damp(curves, np.array([1, 1]), np.array([4, 4]), remaining, 6, cost)
    assert sizes.tolist() == [1, 4]  # the one with less left keeps its own
