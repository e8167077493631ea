import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.sizing.curves import concave, every_size, size_grid


def test_sizes_are_powers_of_two_inside_a_node_and_whole_nodes_beyond():
    assert size_grid(4, 20).tolist() == [1, 2, 4, 8, 12, 16, 20]
    assert size_grid(8, 20).tolist() == [1, 2, 4, 8, 16]
    assert size_grid(6, 13).tolist() == [1, 2, 6, 12]
    assert size_grid(1, 3).tolist() == [1, 2, 3]
    assert size_grid(8, 3).tolist() == [1, 2]


def test_a_size_that_is_slower_than_a_smaller_one_is_not_worth_having():
    curves = concave(np.array([1, 2, 4, 8]), np.array([[2.0, 4.0, 3.0, 10.0]]))
    assert curves.speed.tolist() == [[1.0, 2.0, 3.0, 5.0]]
    assert curves.reached.tolist() == [[True, True, False, True]]


def test_a_size_that_is_no_faster_is_not_worth_having():
    curves = concave(np.array([1, 2, 4, 8, 12]), np.array([[1.0, 1.7, 2.9, 0.0, 0.0]]))
    assert curves.reached.tolist() == [[True, True, True, False, False]]
    assert curves.speed[0, 2:].tolist() == [2.9, 2.9, 2.9]


@pytest.mark.parametrize("bad", [[0.0, 1.0], [1.0, -1.0], [float("nan"), 1.0], [1.0, float("inf")]])
def test_what_is_no_speed_is_refused(bad):
    with pytest.raises(ValueError, match="a speed is"):
        concave(np.array([1, 2]), np.array([bad]))


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.floats(0.01, 1000.0), min_size=6, max_size=6))
def test_the_envelope_is_the_least_concave_curve_above(values):
    grid = np.array([1, 2, 4, 8, 12, 16])
    curves = concave(grid, np.array([values]))
    speed = np.maximum.accumulate(np.array(values) / values[0])
    envelope = curves.speed[0]
    assert (envelope >= speed - 1e-9).all()
    slopes = np.diff(envelope) / np.diff(grid)
    assert (np.diff(slopes) <= 1e-9 * max(1.0, slopes.max())).all()
    for at in range(6):  # least: each point is one of the curve, or lies on a chord of it
        chords = [
            speed[a] + (speed[b] - speed[a]) * (grid[at] - grid[a]) / (grid[b] - grid[a])
            for a in range(at)
            for b in range(at + 1, 6)
        ]
        assert envelope[at] == pytest.approx(max([speed[at], *chords]))


def test_every_size_up_to_sixteen_and_whole_nodes_in_wider_and_wider_steps() -> None:
    """No size is more than an eighth, or a node, above the one before."""
    assert every_size(4, 1).tolist() == [1]
    assert every_size(4, 20).tolist() == [*range(1, 17), 20]
    assert every_size(8, 30).tolist() == [*range(1, 17), 24, 30]
    wide = every_size(8, 5000)
    assert len(wide) < 80 and wide[-1] == 5000
    steps = np.diff(wide)
    assert (steps > 0).all()
    assert (steps <= np.maximum(8, wide[:-1] / 8 + 8)).all()
