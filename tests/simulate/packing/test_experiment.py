from dataclasses import replace

import pytest

from shoal.simulate.errors import BadInput
from shoal.simulate.packing.experiment import pack
from shoal.simulate.packing.policies import POLICIES
from tests.simulate.packing.small import nodes_of, pods_of


@pytest.fixture
def setting(tmp_path):
    nodes = nodes_of(tmp_path, *["16000,100,4,T4", "8000,100,2,A10"] * 3)
    pods = pods_of(tmp_path, *["3000,1,1,400", "2000,1,1,1000", "500,1,0,0", "1000,1,2,1000"] * 4)
    return nodes, pods


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_in_use_is_what_was_placed(setting, name):
    nodes, pods = setting
    run = pack(nodes, pods, name, 42)
    asked = sum(int(pods.shapes.gpu_milli[each.shape]) for each in run.placed)
    assert run.allocated_milli == asked <= nodes.gpu_milli
    assert run.refused > 0
    assert run.cpu_seconds >= 0
    assert replace(run, cpu_seconds=0) == replace(pack(nodes, pods, name, 42), cpu_seconds=0)
    assert run.placed != pack(nodes, pods, name, 43).placed


def test_less_demand_is_all_placed(setting):
    nodes, pods = setting
    run = pack(nodes, pods, "shoal", 42, demand=40)
    assert run.refused == 0
    assert run.allocated_milli <= 0.4 * nodes.gpu_milli


def test_a_policy_that_is_not_there_is_told(setting):
    with pytest.raises(BadInput, match="no policy 'worst-fit'; there are random, best-fit, fgd, shoal"):
        pack(*setting, "worst-fit", 42)


def test_a_pod_that_fits_no_node_is_refused_not_an_error(tmp_path):
    nodes = nodes_of(tmp_path, *["1000,100,2,T4"] * 8)
    pods = pods_of(tmp_path, "1,1,3,1000", *["1,1,1,1000"] * 16)
    for name in POLICIES:
        run = pack(nodes, pods, name, 42)
        assert (run.allocated_milli, run.refused > 0) == (16_000, True)
        assert 0 not in {each.shape for each in run.placed}


@pytest.mark.slow
def test_few_pods_with_gpus_among_many_without_are_placed_too(tmp_path):
    nodes = nodes_of(tmp_path, *["9000,9000,2,T4"] * 4)
    pods = pods_of(tmp_path, *["1,1,0,0"] * 60, "1,1,1,600", "1,1,1,1000")
    for name in POLICIES:
        run = pack(nodes, pods, name, 42, demand=70)
        assert run.refused == 0
        assert run.allocated_milli >= 5000
