import numpy as np
import pytest

from shoal.simulate.packing.fitting import typical
from shoal.simulate.packing.holes import hole_worth
from shoal.simulate.packing.rehearsal import rehearse
from tests.simulate.packing.small import nodes_of, pods_of

HUNGRY, MODEST = 0, 1


@pytest.fixture
def setting(tmp_path):
    nodes = nodes_of(tmp_path, *["8000,100,2,few"] * 60, *["64000,100,2,many"] * 60)
    pods = pods_of(tmp_path, *["20000,1,1,1000", "3000,1,1,1000"] * 100)
    return nodes, pods, typical(pods, nodes, 1.0, idle=True)


def test_those_who_want_many_cores_come_where_they_are(setting):
    nodes, pods, mix = setting
    weight = rehearse(nodes, pods, mix, hole_worth(mix, 30))
    few, many = (int(nodes.kind[node]) for node in (0, -1))
    assert weight.sum(axis=1) == pytest.approx(1)
    assert weight[few, HUNGRY] < 0.2 < 0.6 < weight[many, HUNGRY]


def test_a_rehearsal_is_the_same_each_time(setting):
    nodes, pods, mix = setting
    first, second = (rehearse(nodes, pods, mix, hole_worth(mix, 30)) for _ in range(2))
    assert np.array_equal(first, second)
