import numpy as np

from shoal.simulate.packing.fleet import Fleet
from shoal.simulate.packing.states import requests_of
from shoal.simulate.packing.where import Where
from tests.simulate.packing.small import nodes_of, pods_of


class Counting:
    """Every place is as good as any other; how many states were looked at is counted."""

    def __init__(self):
        self.looked_at = 0

    def value(self, states):
        self.looked_at += len(states)
        return np.zeros(len(states))

    def score(self, after, before):
        return after - before


def test_of_equal_places_the_first_node_and_the_gpu_with_the_least_free(tmp_path):
    nodes = nodes_of(tmp_path, "8000,800,2,T4", "8000,800,2,T4")
    pods = pods_of(tmp_path, "1,1,1,600", "1,1,1,300")
    asked = requests_of(pods.shapes, nodes)
    policy, fleet = Where(asked, Counting()), Fleet(nodes)
    slots = []
    for shape in (0, 1, 1, 1, 0):
        place = policy.choose(fleet, shape)
        assert place is not None
        slots.append((place.node, *fleet.place(place, asked[shape])))
    assert slots == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0)]


def test_what_is_known_of_a_state_is_not_worked_out_again(tmp_path):
    nodes = nodes_of(tmp_path, *["8000,800,2,T4"] * 50)
    asked = requests_of(pods_of(tmp_path, "1,1,1,1000").shapes, nodes)
    value = Counting()
    policy, fleet = Where(asked, value), Fleet(nodes)
    for _ in range(100):
        place = policy.choose(fleet, 0)
        assert place is not None
        fleet.place(place, asked[0])
    assert value.looked_at == 4  # before and after, with two GPUs free and with one
    assert policy.choose(fleet, 0) is None
    assert value.looked_at == 4
