from collections import Counter

from shoal.simulate.packing.at_random import Random
from shoal.simulate.packing.fleet import Fleet
from shoal.simulate.packing.states import requests_of
from tests.simulate.packing.small import nodes_of, pods_of


def setting(tmp_path):
    nodes = nodes_of(tmp_path, "8000,800,2,T4", "10,800,2,T4", "8000,800,4,A10")
    pods = pods_of(tmp_path, "100,1,1,600", "1,1,1,300", "1,1,4,1000", "1,1,0,0")
    return nodes, requests_of(pods.shapes, nodes)


def chosen(policy, fleet, shape, times):
    return {place.node for _ in range(times) if (place := policy.choose(fleet, shape))}


def test_any_node_with_room_is_as_likely_as_the_others(tmp_path):
    nodes, asked = setting(tmp_path)
    policy, fleet = Random(asked, 1), Fleet(nodes)
    seen = Counter(place.node for _ in range(600) if (place := policy.choose(fleet, 0)))
    assert set(seen) == {0, 2}
    assert min(seen.values()) > 240
    assert chosen(policy, fleet, 2, 20) == {2}
    assert chosen(policy, fleet, 3, 50) == {0, 1, 2}


def test_any_gpu_with_room_is_as_likely_as_the_others(tmp_path):
    nodes, asked = setting(tmp_path)
    policy, fleet = Random(asked, 1), Fleet(nodes)
    while (place := policy.choose(fleet, 2)) is not None:
        fleet.place(place, asked[2])  # only the nodes with two are left
    free = Counter()
    for _ in range(400):
        place = policy.choose(fleet, 1)
        assert place is not None
        free[place.free] += 1
    assert free == {1000: 400}
    place = policy.choose(fleet, 0)
    assert place is not None
    fleet.place(place, asked[0])
    there = [p.free for _ in range(400) if (p := policy.choose(fleet, 1)) and p.node == place.node]
    assert 0.35 < there.count(400) / len(there) < 0.65


def test_a_seed_is_a_choice(tmp_path):
    nodes, asked = setting(tmp_path)

    def nodes_chosen(seed):
        policy, fleet = Random(asked, seed), Fleet(nodes)
        return [place.node for _ in range(40) if (place := policy.choose(fleet, 1))]

    assert nodes_chosen(3) == nodes_chosen(3)
    assert nodes_chosen(3) != nodes_chosen(4)


def test_where_nothing_fits_there_is_no_place(tmp_path):
    nodes = nodes_of(tmp_path, "8000,800,2,T4")
    asked = requests_of(pods_of(tmp_path, "1,1,3,1000").shapes, nodes)
    assert Random(asked, 1).choose(Fleet(nodes), 0) is None
