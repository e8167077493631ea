import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.schedule.shares.divisible import divisible, dominant, whole

NEED = np.array([[1.0, 4.0], [3.0, 1.0]])
CAPACITY = np.array([9.0, 18.0])
ENDLESS = np.full(2, np.inf)


def test_dominant_shares_are_made_equal():
    """scheduling-D1: 9 CPU, 18 GB; A asks <1, 4>, B <3, 1>: 3 and 2 tasks, dominant shares 2/3 each."""
    tasks = divisible(NEED, ENDLESS, CAPACITY)
    assert tasks == pytest.approx([3, 2])
    assert dominant(NEED * tasks[:, None], CAPACITY) == pytest.approx([2 / 3, 2 / 3])
    assert whole(NEED, np.array([99, 99]), CAPACITY).tolist() == [3, 2]


@pytest.mark.parametrize(
    ("weight", "tasks", "shares"),
    [((1, 2), (1.8, 2.4), (0.4, 0.8)), ((2, 1), (54 / 13, 18 / 13), (12 / 13, 6 / 13))],
)
def test_weights_set_the_ratio_of_dominant_shares(weight, tasks, shares):
    """scheduling-D2."""
    found = divisible(NEED, ENDLESS, CAPACITY, np.array(weight, dtype=float))
    assert found == pytest.approx(tasks)
    assert dominant(NEED * found[:, None], CAPACITY) == pytest.approx(shares)


def test_nobody_to_weigh_is_an_error():
    with pytest.raises(ValueError, match="all weights are 0"):
        divisible(NEED, ENDLESS, CAPACITY, np.zeros(2))
    with pytest.raises(ValueError, match="all weights are 0"):
        whole(NEED, np.array([1, 1]), CAPACITY, np.zeros(2))


def test_a_row_that_nothing_bounds_is_an_error():
    with pytest.raises(ValueError, match="nothing bounds row 1"):
        divisible(np.array([[1.0], [0.0]]), ENDLESS, np.array([3.0]))


@st.composite
def rows(draw):
    count, resources = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    row = st.lists(st.integers(0, 5), min_size=resources, max_size=resources).filter(any)
    need = np.array(draw(st.lists(row, min_size=count, max_size=count)), dtype=float)
    most = np.array(draw(st.lists(st.sampled_from([1.0, 3.0, 50.0]), min_size=count, max_size=count)))
    capacity = np.array(
        draw(st.lists(st.integers(2, 20), min_size=resources, max_size=resources)), dtype=float
    )
    weight = np.array(draw(st.lists(st.integers(1, 3), min_size=count, max_size=count)), dtype=float)
    return need, most, capacity, weight


def useful(need, amounts):
    """Tasks that amounts (..., r) are good for."""
    ratio = np.divide(
        amounts, need, out=np.full(np.broadcast(amounts, need).shape, np.inf), where=need > 0
    )
    return ratio.min(axis=-1)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(rows())
def test_nobody_is_better_off_with_its_part_of_the_cluster(problem):
    """scheduling-D3: sharing incentive."""
    need, most, capacity, weight = problem
    tasks = divisible(need, most, capacity, weight)
    alone = useful(need, capacity * (weight / weight.sum())[:, None])
    assert (tasks >= np.minimum(alone, most) - 1e-7).all()


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(rows())
def test_nobody_would_rather_have_what_another_has(problem):
    """scheduling-D3: envy-freeness, by weight."""
    need, most, capacity, weight = problem
    tasks = divisible(need, most, capacity, weight)
    given = need * tasks[:, None]
    for row in range(len(need)):
        others = useful(need[row], given * (weight[row] / weight)[:, None])
        assert (tasks[row] >= np.minimum(others, most[row]) - 1e-7).all()


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(rows())
def test_nobody_can_have_more_without_another_having_less(problem):
    """scheduling-D3: Pareto efficiency: who wants more needs something of which nothing is left."""
    need, most, capacity, weight = problem
    tasks = divisible(need, most, capacity, weight)
    left = capacity - (need * tasks[:, None]).sum(axis=0)
    assert (left >= -1e-7).all()
    for row in np.flatnonzero(tasks < most - 1e-7):
        assert left[need[row] > 0].min() == pytest.approx(0.0, abs=1e-7)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(rows(), st.data())
def test_nobody_gains_by_a_lie(problem, data):
    """scheduling-D3: strategy-proofness, for lies about shape and number."""
    need, most, capacity, weight = problem
    liar = data.draw(st.integers(0, len(need) - 1))
    lie = np.array(
        data.draw(st.lists(st.integers(0, 6), min_size=len(capacity), max_size=len(capacity)))
    )
    assume(lie.any())
    told, wanted = need.copy(), most.copy()
    told[liar], wanted[liar] = lie, data.draw(st.sampled_from([1.0, 2.0, 4.0, 100.0]))
    honest = divisible(need, most, capacity, weight)[liar]
    given = told[liar] * divisible(told, wanted, capacity, weight)[liar]
    assert min(useful(need[liar], given), most[liar]) <= honest + 1e-7


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows())
def test_of_whole_gangs_an_envied_row_has_one_too_many_at_most(problem):
    """scheduling-D3: envy up to one gang, by weight."""
    need, most, capacity, weight = problem
    tasks = whole(need, most.astype(np.int64), capacity, weight)
    assert ((need * tasks[:, None]).sum(axis=0) <= capacity + 1e-7).all()
    for row in range(len(need)):
        for other in np.flatnonzero(tasks):
            less = need[other] * (tasks[other] - 1) * weight[row] / weight[other]
            assert tasks[row] + 1 > min(useful(need[row], less), most[row]) - 1e-7


def test_whole_gangs_go_to_the_one_that_will_be_least_ahead():
    need = np.array([[4.0], [1.0]])
    assert whole(need, np.array([9, 9]), np.array([10.0])).tolist() == [1, 6]
    assert whole(need, np.array([9, 2]), np.array([10.0])).tolist() == [2, 2]
    assert whole(need, np.array([9, 9]), np.array([10.0]), np.array([0.0, 1.0])).tolist() == [0, 9]
