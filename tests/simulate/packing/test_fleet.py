import numpy as np
import pytest

from shoal.simulate.packing.fleet import Fleet, Place
from tests.simulate.packing.small import nodes_of, request


@pytest.fixture
def fleet(tmp_path):
    return Fleet(nodes_of(tmp_path, "8000,800,4,T4", "8000,800,2,T4", "8000,800,2,T4"))


def test_nodes_that_are_alike_are_in_one_state(fleet):
    assert fleet.state.tolist() == [0, 1, 1]
    assert fleet.seen == 2
    assert fleet.states(fleet.state).gpus.tolist() == [
        [1000] * 4,
        [0, 0, 1000, 1000],
        [0, 0, 1000, 1000],
    ]


def test_a_part_goes_on_the_first_gpu_with_so_much_free(fleet):
    third = request(1000, 100, 1, 300, (True, True))
    assert fleet.place(Place(1, 1000), third) == (0,)
    assert fleet.place(Place(1, 1000), third) == (1,)
    assert fleet.place(Place(1, 700), third) == (0,)
    assert fleet.gpus[1].tolist() == [400, 700, 0, 0]
    assert fleet.states(fleet.state[[1]]).cpu.tolist() == [5000]
    assert fleet.states(fleet.state[[1]]).memory.tolist() == [500]


def test_whole_ones_pass_over_those_in_use(fleet):
    fleet.place(Place(0, 1000), request(0, 0, 1, 300, (True, True)))
    assert fleet.place(Place(0, 0), request(0, 0, 3, 1000, (True, True))) == (1, 2, 3)


def test_a_state_that_comes_again_has_its_number_again(fleet):
    half = request(0, 0, 1, 500, (True, True))
    fleet.place(Place(1, 1000), half)
    fleet.place(Place(2, 1000), half)
    assert fleet.state[1] == fleet.state[2]
    assert fleet.seen == 3


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        (Place(1, 1000), request(8001, 0, 1, 500, (True, True))),
        (Place(1, 1000), request(0, 801, 1, 500, (True, True))),
        (Place(1, 0), request(0, 0, 3, 1000, (True, True))),
        (Place(1, 400), request(0, 0, 1, 300, (True, True))),
        (Place(1, 0), request(0, 0, 1, 300, (True, True))),
        (Place(1, 1000), request(0, 0, 1, 300, (False, False))),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(fleet, place, wanted):
    before = fleet.gpus.copy(), fleet.state.copy(), fleet.seen
    with pytest.raises(ValueError, match="does not fit node 1"):
        fleet.place(place, wanted)
    assert np.array_equal(before[0], fleet.gpus)
    assert np.array_equal(before[1], fleet.state)
    assert before[2] == fleet.seen


def test_there_may_be_many_states(tmp_path):
    fleet = Fleet(nodes_of(tmp_path, "8000,800,1,T4"))
    for left in range(300, 0, -1):
        fleet.place(Place(0, 700 + left), request(1, 1, 1, 1))
    assert fleet.seen == 301
    assert fleet.states(np.array([0, 150, 300])).cpu.tolist() == [8000, 7850, 7700]
