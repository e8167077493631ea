from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.sizing.choose import Demand, choose
from shoal.schedule.sizing.curves import concave
from shoal.schedule.sizing.estimate import attained_weights

LONG = 1e9


def demand(values, weight, current=None, remaining=LONG, restart=30.0, grid=(1, 2, 4)):
    curves = concave(np.array(grid), np.array(values, dtype=np.float64))
    count = len(curves.speed)
    return Demand(
        curves=curves,
        weight=np.array(weight, dtype=np.float64),
        current=np.array([0] * count if current is None else current),
        remaining=np.broadcast_to(np.array(remaining, dtype=np.float64), count).copy(),
        restart=np.full(count, restart),
    )


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_on_sizes_one_apart_nothing_makes_more_of_the_weights(data):
    count, capacity = data.draw(st.integers(1, 4)), data.draw(st.integers(5, 9))
    rises = data.draw(
        st.lists(
            st.lists(st.integers(1, 200), min_size=4, max_size=4).map(lambda r: sorted(r, reverse=True)),
            min_size=count,
            max_size=count,
        )
    )
    weight = data.draw(st.lists(st.integers(1, 50), min_size=count, max_size=count))
    values = np.cumsum(np.array(rises), axis=1)
    asked = demand(values, weight, grid=(1, 2, 3, 4))
    sizes = choose(asked, capacity, 600.0)

    def worth(choice):
        speed = asked.curves.speed
        return sum(asked.weight[job] * speed[job, size - 1] for job, size in enumerate(choice))

    best = max(worth(c) for c in product(range(1, 5), repeat=count) if sum(c) <= capacity)
    assert sizes.sum() <= capacity
    assert (sizes >= 1).all()
    assert worth(sizes.tolist()) == pytest.approx(best)


def test_the_greatest_weights_run_where_not_all_can():
    asked = demand([[1.0, 1.5, 1.6]] * 3, [1.0, 3.0, 2.0])
    assert choose(asked, 2, 600.0).tolist() == [0, 1, 1]


def test_what_a_large_step_cannot_use_goes_to_others():
    asked = demand([[1.0, 2.0, 4.0], [1.0, 1.1, 1.2]], [1.0, 1.0])
    assert choose(asked, 4, 600.0).tolist() == [2, 2]


def test_nobody_grows_for_less_than_its_restart():
    fast = [[1.0, 2.0, 4.0]]
    assert choose(demand(fast, [1.0], [2], remaining=100.0), 8, 600.0).tolist() == [2]
    assert choose(demand(fast, [1.0], [2], remaining=1000.0), 8, 600.0).tolist() == [4]
    assert choose(demand(fast, [1.0], [2], remaining=1000.0), 8, 50.0).tolist() == [2]
    assert choose(demand(fast, [1.0], [2], remaining=1000.0, restart=900.0), 8, 600.0).tolist() == [2]


def test_nobody_shrinks_for_nobody_and_one_does_for_a_newcomer():
    four = [[1.0, 2.0, 4.0]] * 2
    assert choose(demand(four, [1.0, 1.0], [4, 4]), 8, 600.0).tolist() == [4, 4]
    three = [[1.0, 2.0, 4.0]] * 2 + [[1.0, 1.0, 1.0]]
    sizes = choose(demand(three, [1.0, 1.0, 1.0], [4, 4, 0]), 8, 600.0)
    assert sorted(sizes.tolist()) == [1, 2, 4]
    assert sizes[2] == 1


def test_the_smaller_of_two_alike_makes_room_for_a_small_newcomer():
    """A restart of eight costs eight GPUs their time; one of two costs two."""
    values = [[1.0, 1.9, 3.6, 6.5], [1.0, 1.9, 3.6, 6.5], [1.0, 1.0, 1.0, 1.0]]
    asked = demand(values, [1.0, 1.0, 1.0], [8, 2, 0], grid=(1, 2, 4, 8))
    assert choose(asked, 10, 300.0).tolist() == [8, 1, 1]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_there_is_never_more_given_than_there_is(data):
    count, capacity = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 40))
    numbers = st.floats(0.0, 5.0)
    values = data.draw(
        st.lists(st.lists(numbers, min_size=5, max_size=5), min_size=count, max_size=count)
    )
    values = np.cumsum(np.array(values), axis=1) + 0.01
    weight = data.draw(st.lists(st.floats(1e-6, 1e3), min_size=count, max_size=count))
    remaining = data.draw(st.lists(st.floats(0.001, 1e6), min_size=count, max_size=count))
    current: list[int] = []
    for _ in range(count):
        current.append(data.draw(st.integers(0, max(0, capacity - sum(current)))))
    asked = demand(values, weight, current, remaining, grid=(1, 2, 4, 8, 12))
    sizes = choose(asked, capacity, 300.0)
    assert sizes.sum() <= capacity
    assert (sizes >= 0).all()
    assert (sizes > 0).sum() == min(count, capacity)
    assert choose(asked, capacity, 300.0).tolist() == sizes.tolist()


def test_without_declared_work_the_young_weigh_more_and_like_ages_weigh_the_same():
    weight = attained_weights(np.array([0.0, 10.0, 40_000.0, 45_000.0]), np.zeros(4))
    assert weight[0] == weight[1] > weight[2] == weight[3]
    assert weight.mean() == pytest.approx(1.0)


def test_without_declared_work_the_oldest_of_the_long_ones_weighs_most():
    """Beyond sixteen hours what a job has done counts no more; all of them together weigh as before."""
    done = np.array([10.0, 90_000.0, 60_000.0, 900_000.0, 70_000.0])
    weight = attained_weights(done, np.array([900.0, 20.0, 30.0, 10.0, 20.0]))
    short, second, last, first, as_old = weight
    assert short > first > second == as_old > last > 0
    assert weight[1:].mean() / short == pytest.approx(2 ** (-0.3 * 7))
    at_once = attained_weights(done, np.zeros(5))
    assert at_once[1:].tolist() == pytest.approx([weight[1:].mean()] * 4)


def test_where_nobody_knows_what_is_left_doubling_is_worth_the_same_to_all():
    asked = demand([[1.0, 2.0, 3.0], [1.0, 1.9, 3.6]], [1.0, 1.0])
    even = replace(asked, logarithmic=True)
    assert choose(asked, 5, 300.0).tolist() == [1, 4]
    assert choose(even, 5, 300.0).tolist() == [2, 2]
    assert choose(even, 4, 300.0).tolist() == [2, 2]
    # growing from 2 to 4 adds log 2; a restart of a tenth of the time takes away log 0.9
    grown = replace(even, current=np.array([2, 1]), restart=np.full(2, 30.0))
    assert choose(grown, 6, 300.0).sum() == 6
    assert choose(replace(grown, restart=np.full(2, 250.0)), 6, 300.0).tolist() == [2, 1]
