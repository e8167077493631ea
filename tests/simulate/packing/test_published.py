"""The openb experiment on the published files, held against the published means.

Those are of ten orders of arrival; three tell enough here, as a policy's orders differ by little
(`python -m bench.schedule.packing` runs all ten). They are not the orders of the publication, so a
figure is near if it is within half a point.
"""

import csv

import pytest

from shoal.simulate.packing.experiment import DEMAND, SEEDS, pack
from shoal.simulate.packing.nodes import read_nodes
from shoal.simulate.packing.pods import read_pods
from shoal.simulate.packing.report import record_of
from tests.simulate.published import DATA

OPENB = DATA / "openb"
LISTS = ("openb_pod_list_default", "openb_pod_list_multigpu50")
GOALS = {"openb_pod_list_default": 95.4, "openb_pod_list_multigpu50": 97.2}
PUBLISHED = {"random": "01-Random", "best-fit": "05-BestFit", "fgd": "06-FGD"}

pytestmark = [
    pytest.mark.skipif(not OPENB.is_dir(), reason=f"the published openb data are not in {DATA}"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def nodes():
    return read_nodes(OPENB / "openb_node_list_all_node.csv")


def mean_of(nodes, name, policy):
    pods = read_pods(OPENB / f"{name}.csv")
    runs = [pack(nodes, pods, policy, seed) for seed in SEEDS[:3]]
    return record_of(policy, nodes, pods, DEMAND, runs).mean


def test_the_files_hold_what_was_published_of_them(nodes):
    assert len(nodes.names) == 1213
    assert nodes.without_gpu == 310
    assert nodes.gpu_milli == 6_212_000
    assert nodes.cpu.sum() == 107_018_000
    pods = [read_pods(OPENB / f"{name}.csv") for name in LISTS]
    assert [len(each) for each in pods] == [8152, 9061]
    assert [each.shapes.gpu_milli[each.shape].sum() for each in pods] == [6_086_800, 11_358_800]


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("policy", PUBLISHED)
def test_policies_made_anew_come_near_the_published_means(nodes, name, policy):
    with (OPENB / "fgd_published_allocation.csv").open(newline="") as file:
        published = {
            row["policy"]: float(row["allocation_pct_at_130pct_demand_mean_of_seeds"])
            for row in csv.DictReader(file)
            if row["workload"] == name
        }
    assert mean_of(nodes, name, policy) == pytest.approx(published[PUBLISHED[policy]], abs=0.5)


@pytest.mark.parametrize("name", LISTS)
def test_shoal_packs_tighter_than_was_published(nodes, name):
    assert mean_of(nodes, name, "shoal") >= GOALS[name]
