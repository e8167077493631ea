import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.simulate.packing.filling import fill
from shoal.simulate.packing.nodes import GPU
from shoal.simulate.packing.policies import POLICIES
from shoal.simulate.packing.states import requests_of
from tests.simulate.packing.small import nodes_of, pods_of

NODES = ("16000,16000,4,T4", "8000,16000,2,T4", "8000,4000,2,A10", "64000,9000,1,T4")
PODS = (
    *["3000,1000,1,500", "1000,500,1,470"] * 3,
    *["2000,800,1,1000", "1000,3000,1,810", "900,900,0,0"] * 2,
    "6000,900,2,1000",
    "1,1,4,1000",
)


def setting(tmp_path):
    nodes, pods = nodes_of(tmp_path, *NODES), pods_of(tmp_path, *PODS)
    return nodes, pods, requests_of(pods.shapes, nodes)


def test_sixteen_halves_fill_eight_gpus(tmp_path):
    """scheduling-F1: 16 x 0.5 at once on 8 GPUs, exactly two on each."""
    nodes, pods = nodes_of(tmp_path, "64000,6400,8,T4"), pods_of(tmp_path, *["1,1,1,500"] * 17)
    asked = requests_of(pods.shapes, nodes)
    for name, make in POLICIES.items():
        placed = list(fill(nodes, asked, make(nodes, pods, 1), pods.shape.tolist()))
        assert sorted(slot for each in placed for slot in each.gpus) == sorted([*range(8)] * 2), name
        assert [each.arrival for each in placed] == list(range(16)), name


def test_the_large_find_room_where_it_is(tmp_path):
    """scheduling-F4: nodes of 4, 4 and 2; pods of 2, 4 and 4: all are placed."""
    nodes = nodes_of(tmp_path, *(f"64000,6400,{gpus},T4" for gpus in (4, 4, 2)))
    pods = pods_of(tmp_path, *(f"1,1,{gpus},1000" for gpus in (2, 4, 4)))
    asked = requests_of(pods.shapes, nodes)
    for name in ("best-fit", "fgd", "shoal"):
        policy = POLICIES[name](nodes, pods, 1)
        assert [each.node for each in fill(nodes, asked, policy, pods.shape.tolist())] == [2, 0, 1], name


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(list(POLICIES)))
def test_nothing_is_given_twice_and_nothing_that_fits_is_refused(tmp_path_factory, seed, name):
    nodes, pods, asked = setting(tmp_path_factory.mktemp("files"))
    chance = np.random.default_rng(seed)
    order = chance.choice(pods.shape, size=40).tolist()
    cpu, memory = nodes.cpu.copy(), nodes.memory.copy()
    gpus = [[GPU] * count for count in nodes.gpus.tolist()]
    placed = {
        each.arrival: each for each in fill(nodes, asked, POLICIES[name](nodes, pods, seed), order)
    }
    for arrival, shape in enumerate(order):
        wanted, place = asked[shape], placed.get(arrival)
        if place is None:
            for node in range(len(gpus)):
                able = sum(free >= max(1, wanted.milli) for free in gpus[node])
                fits = cpu[node] >= wanted.cpu and memory[node] >= wanted.memory
                assert not (fits and able >= wanted.gpus)
            continue
        assert place.shape == shape
        assert len(set(place.gpus)) == wanted.gpus
        cpu[place.node] -= wanted.cpu
        memory[place.node] -= wanted.memory
        for slot in place.gpus:
            gpus[place.node][slot] -= wanted.milli
        assert cpu[place.node] >= 0
        assert memory[place.node] >= 0
        assert min(gpus[place.node]) >= 0
