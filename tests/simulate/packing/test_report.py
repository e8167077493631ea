import pytest

from shoal.simulate.packing.experiment import pack
from shoal.simulate.packing.policies import KNOWS, POLICIES
from shoal.simulate.packing.report import record_of
from tests.simulate.packing.small import nodes_of, pods_of


def test_it_is_said_of_every_policy_what_it_knows():
    assert list(KNOWS) == list(POLICIES)


def test_a_record_has_a_value_for_each_seed(tmp_path):
    nodes = nodes_of(tmp_path, *["16000,100,4,T4", "8000,100,2,A10"] * 3)
    pods = pods_of(tmp_path, *["3000,1,1,400", "2000,1,1,1000", "500,1,0,0", "1000,1,2,1000"] * 4)
    runs = [pack(nodes, pods, "fgd", seed, 110) for seed in (3, 4)]
    record = record_of("fgd", nodes, pods, 110, runs)
    assert (record.policy, record.nodes, record.pods, record.seeds) == ("fgd", 6, 16, [3, 4])
    assert record.allocated_gpu_percent == [100 * run.allocated_milli / 18_000 for run in runs]
    assert record.mean == sum(record.allocated_gpu_percent) / 2
    assert record.placed == [len(run.placed) for run in runs]
    assert record.refused == [run.refused for run in runs]
    with pytest.raises(ValueError, match="one run at least"):
        record_of("fgd", nodes, pods, 110, [])
