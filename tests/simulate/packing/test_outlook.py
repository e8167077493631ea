import numpy as np
import pytest

from shoal.simulate.packing.fitting import typical
from shoal.simulate.packing.outlook import Outlook
from tests.simulate.packing.small import nodes_of, pods_of, state

PODS = ("4000,1000,1,1000", "1000,500,1,500")
HOLES = np.where(np.arange(1001) >= 500, 400.0, 0.0)


def value_of(tmp_path, weight, states):
    nodes = nodes_of(tmp_path, "16000,9000,4,T4")
    mix = typical(pods_of(tmp_path, *PODS), nodes, 1.0, idle=True)
    return Outlook(mix, np.array([weight], dtype=float), HOLES).value(states).tolist()


def test_where_cores_are_left_for_two_there_are_not_four_gpus(tmp_path):
    full = state(16000, 9000, *[1000] * 4)
    few = state(8000, 9000, *[1000] * 4)
    assert value_of(tmp_path, (1, 0), full) == [4000]
    assert value_of(tmp_path, (1, 0), few) == [2000]
    assert value_of(tmp_path, (0, 1), few) == [4000]
    assert value_of(tmp_path, (0.5, 0.5), few) == [3000]


def test_memory_counts_as_cores_do(tmp_path):
    assert value_of(tmp_path, (1, 0), state(16000, 2500, *[1000] * 4)) == [2500]
    # less than one of them needs: others use what is left, as fast as this one would
    assert value_of(tmp_path, (1, 0), state(16000, 999, *[1000] * 4)) == [999]


def test_a_hole_is_worth_what_others_make_of_it(tmp_path):
    assert value_of(tmp_path, (1, 0), state(16000, 9000, 0, 0, 600, 1000)) == [1400]
    assert value_of(tmp_path, (1, 0), state(16000, 9000, 0, 0, 499, 1000)) == [1000]
    assert value_of(tmp_path, (0, 1), state(16000, 9000, 0, 0, 600, 1000)) == [1600]
    assert value_of(tmp_path, (1, 0), state(16000, 9000, 0, 0, 600, 600)) == [800]


def test_a_change_counts(tmp_path):
    nodes = nodes_of(tmp_path, "16000,9000,4,T4")
    outlook = Outlook(
        typical(pods_of(tmp_path, *PODS), nodes, 1.0, idle=True), np.array([[0.5, 0.5]]), HOLES
    )
    assert outlook.score(np.array([5.0]), np.array([7.0])).tolist() == [pytest.approx(-2)]
