import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.placing.bulk import place_many
from shoal.schedule.placing.place import place
from shoal.schedule.placing.slots import shared_slots, whole_slots
from tests.schedule.placing.small import gang, room, running, share


def whole(free, count, size):
    return whole_slots(np.array([free]) * 1000, np.array([count]), size).tolist()


@pytest.mark.parametrize("nodes", [(8,), (4, 4), (1,) * 8])
def test_sixteen_halves_are_two_on_each_of_eight_gpus(nodes):
    """scheduling-F1: at once, as a gang and one by one."""
    half = share(500)
    for ask in ("many", "gang", "single"):
        here = room(*nodes)
        if ask == "many":
            assert len(place_many(here, half, 16)) == 16
        elif ask == "gang":
            assert place(here, gang(half, 16)) is not None
        else:
            assert all(place(here, gang(half, 1)) for _ in range(16))
        assert (here.slots == 0).all()
        assert place(here, gang(half, 1)) is None


def test_what_is_free_on_two_gpus_is_not_free_on_one():
    """scheduling-F2: 0.6 and 0.6 are free, 0.8 is asked for."""
    here = room(2)
    here.occupy(running(share(400), (0, 0), (0, 1)))
    assert here.slots.tolist() == [[600, 600]]
    assert place(here, gang(share(800), 1)) is None
    assert place(here, gang(share(600), 2)) is not None


def test_a_share_goes_to_the_fullest_gpu_that_holds_it():
    here = room(2, 3)
    here.occupy(running(share(300), (1, 1)))
    here.occupy(running(share(600), (1, 2)))
    assert place(here, gang(share(500), 1))[0].slots.tolist() == [[1]]
    assert place(here, gang(share(400), 1))[0].slots.tolist() == [[2]]
    assert here.slots.tolist() == [[1000, 1000, -1], [1000, 200, 0]]


def test_a_task_takes_neighbours_and_leaves_blocks_whole():
    assert whole([1, 1, 1, 1, 1, 1, 1, 1], 1, 1) == [[0]]
    assert whole([0, 1, 1, 1, 1, 1, 1, 1], 1, 1) == [[1]]
    assert whole([0, 1, 1, 1, 1, 1, 1, 1], 1, 2) == [[2, 3]]
    assert whole([0, 1, 1, 1, 1, 1, 1, 1], 1, 4) == [[4, 5, 6, 7]]
    assert whole([0, 1, 1, 1, 0, 1, 1, 1], 2, 2) == [[2, 3], [6, 7]]


def test_where_no_block_is_whole_crumbs_will_do():
    assert whole([0, 1, 1, 0, 1, 0, 0, 1], 1, 2) == [[1, 2]]
    assert whole([1, 1, 0, 1, 1, 0, 0, 1], 1, 4) == [[0, 1, 3, 4]]
    assert whole([1, 1, 0, 1, 1, 1], 1, 3) == [[0, 1, 4]]


frees = st.lists(st.sampled_from([-1, 0, 200, 500, 800, 1000]), min_size=6, max_size=6)


@settings(max_examples=30, deadline=None)
@given(st.lists(frees, min_size=1, max_size=4), st.integers(1, 3), st.data())
def test_whole_gpus_are_idle_and_distinct(rows, size, data):
    free = np.array(rows)
    most = (free == 1000).sum(axis=1) // size
    counts = np.array([data.draw(st.integers(0, int(each))) for each in most])
    slots = whole_slots(free, counts, size)
    node = np.repeat(np.arange(len(free)), counts)
    assert slots.shape == (counts.sum(), size)
    assert (free[node[:, None], slots] == 1000).all()
    given_out = [
        (n, slot) for n, mine in zip(node.tolist(), slots.tolist(), strict=True) for slot in mine
    ]
    assert len(set(given_out)) == len(given_out)


@settings(max_examples=30, deadline=None)
@given(st.lists(frees, min_size=1, max_size=4), st.integers(50, 999), st.data())
def test_shares_are_given_out_as_one_by_one(rows, share, data):
    free = np.array(rows)
    most = (np.maximum(free, 0) // share).sum(axis=1)
    counts = np.array([data.draw(st.integers(0, int(each))) for each in most])
    expected = []
    for row, count in zip(free.tolist(), counts.tolist(), strict=True):
        for _ in range(count):
            slot = min((left, at) for at, left in enumerate(row) if left >= share)[1]
            row[slot] -= share
            expected.append([slot])
    assert shared_slots(free, counts, share).tolist() == expected
