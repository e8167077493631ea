"""Published results come out to the last digit, so that ours can be held against them."""

import json

import pytest

from shoal.schedule.allot import most_free_first
from shoal.schedule.baselines.fifo import Fifo
from shoal.simulate.policies import POLICIES
from shoal.simulate.referee.engine import Cluster, simulate
from shoal.simulate.referee.profiles import read_applications
from shoal.simulate.referee.workload import read_workload
from shoal.simulate.report import record_of
from tests.simulate.published import DATA, needs_pollux

pytestmark = [needs_pollux, pytest.mark.slow]

LISTS = (1, 2, 3, 4, 6)


@pytest.fixture(scope="module")
def applications():
    return read_applications(DATA / "pollux" / "traces")


@pytest.mark.parametrize("number", LISTS)
@pytest.mark.parametrize("name", ["tiresias", "optimus"])
def test_every_published_mean_comes_out_exactly(applications, name, number):
    results = DATA / "pollux" / "published-results" / f"results-jobload__{name}-1.0.json"
    published = json.loads(results.read_text())
    jobs = read_workload(DATA / "pollux" / "workloads" / f"workload-{number}.csv", applications)
    run = simulate(jobs, POLICIES[name]("none"), Cluster())
    assert sum(job.lasted for job in run.jobs) / len(jobs) == published["avgs"][f"workload-{number}"]
    theirs = published["jcts"][f"workload-{number}"]
    assert {job.submission.name: job.lasted for job in run.jobs} == theirs


def test_rigid_jobs_first_come_first_served_take_as_long_as_was_measured_elsewhere(applications):
    jobs = read_workload(DATA / "pollux" / "workloads" / "workload-6.csv", applications)

    def mean(policy):
        return record_of(simulate(jobs, policy, Cluster()), "", "", "").avg_jct

    assert round(mean(Fifo(skip=True))) == 5846
    assert round(mean(Fifo(skip=True, placing=most_free_first))) == 6262
    assert round(mean(Fifo(skip=False))) == 15154
    assert round(mean(Fifo(skip=False, placing=most_free_first))) == 15051


@pytest.mark.parametrize(("information", "part"), [("declared", 0.93), ("profiles", 0.89)])
def test_elastic_jobs_end_sooner_than_under_pollux(applications, information, part):
    jobs = read_workload(DATA / "pollux" / "workloads" / "workload-6.csv", applications)
    run = simulate(jobs, POLICIES["shoal"](information), Cluster())
    assert record_of(run, "", "", "").avg_jct <= part * 2446.13125
