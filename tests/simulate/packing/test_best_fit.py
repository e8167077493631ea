from shoal.simulate.packing.best_fit import BestFit
from shoal.simulate.packing.fleet import Fleet
from shoal.simulate.packing.states import requests_of
from shoal.simulate.packing.where import Where
from tests.simulate.packing.small import nodes_of, pods_of, state


def test_what_is_left_of_cores_and_gpus_counts_half_each(tmp_path):
    value = BestFit(nodes_of(tmp_path, "8000,1,4,T4", "4000,999,2,T4"))
    assert value.value(state(8000, 1, 1000, 1000, 1000, 1000)).tolist() == [0.0]
    assert value.value(state(2000, 999, 0, 0, 1000, 1000)).tolist() == [1 - (0.25 + 0.5) / 2]
    assert value.value(state(0, 50, 0, 0, 0, 0)).tolist() == [1.0]


def test_a_pod_goes_where_least_is_left_and_on_the_gpu_with_least(tmp_path):
    nodes = nodes_of(tmp_path, "8000,1000,4,T4", "4000,1000,2,T4", "4000,1000,2,T4")
    pods = pods_of(tmp_path, "1000,1,1,600", "1000,1,1,300", "1000,1,1,1000")
    asked = requests_of(pods.shapes, nodes)
    policy, fleet = Where(asked, BestFit(nodes)), Fleet(nodes)
    for shape, node, slots in ((0, 1, (0,)), (2, 1, (1,)), (1, 1, (0,)), (2, 2, (0,)), (1, 2, (1,))):
        place = policy.choose(fleet, shape)
        assert place is not None
        assert (place.node, fleet.place(place, asked[shape])) == (node, slots)
