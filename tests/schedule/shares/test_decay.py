import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.schedule.shares.decay import leaned, nothing_used
from shoal.schedule.shares.tree import tree
from tests.schedule.shares.worlds import column

DAY = 86400.0


def test_half_is_forgotten_after_one_half_life():
    used = nothing_used((1, 1), 0.0, DAY).until(0.0, column(0))
    used = type(used)(column(8), 0.0, DAY)
    assert used.until(DAY, column(0)).amounts[0, 0] == pytest.approx(4)
    assert used.until(3 * DAY, column(0)).amounts[0, 0] == pytest.approx(1)


def test_steady_use_tends_to_the_half_life_over_ln_2():
    used = nothing_used((1, 1), 0.0, DAY).until(1000 * DAY, column(5))
    assert used.amounts[0, 0] == pytest.approx(5 * DAY / np.log(2))
    assert used.at == 1000 * DAY


def test_without_forgetting_it_is_the_plain_sum():
    used = nothing_used((2, 1), 10.0, np.inf).until(110.0, column(3, 0))
    assert used.amounts[:, 0].tolist() == [300, 0]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.floats(1.0, 1e6))
def test_it_does_not_matter_how_often_it_is_brought_up_to_date(pauses, half_life):
    rate = column(2)
    often = nothing_used((1, 1), 0.0, half_life)
    for now in np.cumsum(pauses):
        often = often.until(float(now), rate)
    once = nothing_used((1, 1), 0.0, half_life).until(float(np.sum(pauses)), rate)
    assert often.amounts[0, 0] == pytest.approx(once.amounts[0, 0], rel=1e-9, abs=1e-9)


def test_a_clock_that_is_a_little_behind_takes_nothing_back():
    used = nothing_used((1, 1), 100.0, DAY).until(200.0, column(1))
    earlier = used.until(150.0, column(1))
    assert earlier.at == 200.0
    assert earlier.amounts == used.amounts


@pytest.mark.parametrize("half_life", [0.0, -1.0, float("nan")])
def test_a_half_life_is_above_0(half_life):
    with pytest.raises(ValueError, match="above 0 seconds"):
        nothing_used((1, 1), 0.0, half_life)


def test_who_used_its_share_gains_nothing_on_others_and_who_used_more_loses():
    siblings = tree([-1, -1])
    weight, capacity = np.array([1.0, 3.0]), np.array([8.0])
    usage = nothing_used((2, 1), 0.0, DAY)
    assert leaned(siblings, weight, usage, capacity).tolist() == [1, 3]
    due = leaned(siblings, weight, usage.until(DAY, column(1, 3)), capacity)
    assert due[1] / due[0] == pytest.approx(3)
    alike = leaned(siblings, weight, usage.until(DAY, column(2, 2)), capacity)
    assert alike == pytest.approx([2.0**-2, 3 * 2 ** (-2 / 3)])
    assert leaned(siblings, weight, usage.until(DAY, column(2, 2)), capacity, strength=0.0).tolist() == [
        1,
        3,
    ]


def test_families_are_leaned_on_apart():
    """What one family used does not touch the order inside the other."""
    families = tree([-1, -1, 0, 0, 1, 1])
    usage = nothing_used((6, 1), 0.0, DAY).until(DAY, column(0, 0, 6, 2, 0, 0))
    found = leaned(families, np.ones(6), usage, np.array([8.0]))
    assert found == pytest.approx([0.25, 1, 2**-1.5, 2**-0.5, 1, 1])


def test_a_weight_of_0_stays_0():
    usage = nothing_used((2, 1), 0.0, DAY).until(DAY, column(5, 1))
    assert leaned(tree([-1, -1]), np.array([0.0, 1.0]), usage, np.array([8.0]))[0] == 0
