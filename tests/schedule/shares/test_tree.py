import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.shares.tree import tree


@pytest.mark.parametrize(
    ("parents", "named"),
    [([0], "0 -> 0"), ([1, 0], "0 -> 1 -> 0"), ([-1, 2, 3, 1, 1], "1 -> 2 -> 3 -> 1")],
)
def test_queues_above_themselves_are_named(parents, named):
    with pytest.raises(ValueError, match=named):
        tree(parents)


def test_a_parent_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="queue 1 has parent 7, which is none of 2 queues"):
        tree([-1, 7])


def test_no_queues_are_a_tree():
    assert tree([]).levels == ()


@settings(max_examples=40)
@given(st.data())
def test_sums_paths_and_forks_agree_with_walking_up(data):
    order = data.draw(st.permutations(range(data.draw(st.integers(1, 9)))))
    parents = [-1] * len(order)
    for at, queue in enumerate(order):
        above = data.draw(st.integers(-1, at - 1))
        parents[queue] = -1 if above < 0 else order[above]
    made = tree(parents)

    def up(queue):
        return [] if queue < 0 else [queue, *up(parents[queue])]

    values = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(order), max_size=len(order))))
    for queue in range(len(order)):
        inside = [other for other in range(len(order)) if queue in up(other)]
        assert list(made.paths[queue]) == up(queue)
        assert made.depth[queue] == len(up(queue)) - 1
        assert made.sums(values[:, None])[queue, 0] == values[inside].sum()
        assert made.leaf[queue] == (len(inside) == 1)
        for other in range(len(order)):
            mine, theirs = made.fork(queue, other)
            assert list(mine) == [node for node in up(queue) if node not in up(other)]
            assert list(theirs) == [node for node in up(other) if node not in up(queue)]
