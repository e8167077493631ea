import numpy as np

from shoal.schedule.placing.asks import Gang, Group, Tasks
from shoal.schedule.placing.grow import grow
from shoal.schedule.placing.place import place
from tests.schedule.placing.small import gang, gpus, on, rather, room, within
from tests.schedule.placing.torn import miscounted


def grown(here, asked, there, most, least=None):
    more = grow(here, asked, there, [0] * len(most) if least is None else least, most)
    return on(more)


def test_next_to_what_runs_then_outwards():
    here = room(4, 4, 4, 4, 4, racks=[0, 0, 1, 1, 1], blocks=[0, 0, 0, 0, 0])
    asked = gang(gpus(4), 1)
    there = (here.take(gpus(4), np.array([3]), np.array([1])),)
    assert grown(here, asked, there, [2]) == [[2, 4]]
    assert grown(here, asked, there, [9]) == [[0, 1]]


def test_never_out_of_the_rack_that_is_required():
    here = room(4, 4, 4, racks=[0, 0, 1])
    asked = gang(gpus(2), 1, reach=within(0))
    there = place(here, gang(gpus(2), 1, reach=within(0), inside=None))
    assert on(there) == [[2]]
    assert grown(here, asked, there, [4]) == [[2]]
    assert grown(here, asked, there, [4], [1]) is None


def test_groups_grow_together_or_not_at_all():
    here = room(2, 2)
    asked = Gang((Group(gpus(1), 1, 9), Group(gpus(2), 1, 9)), reach=rather(0))
    there = (Tasks.none(gpus(1)), Tasks.none(gpus(2)))
    assert grow(here, asked, there, (3, 1), (3, 1)) is None
    assert miscounted(here, []) == []
    assert grown(here, asked, there, (2, 1), (2, 1)) == [[0, 0], [1]]


def test_nobody_grows_by_nothing():
    here = room(2)
    assert grown(here, gang(gpus(1), 1), (Tasks.none(gpus(1)),), [0]) == [[]]
