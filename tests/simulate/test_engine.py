"""The loop, with every policy, on a workload small enough to follow."""

import pytest

from shoal.schedule.baselines.fifo import Fifo
from shoal.simulate.errors import BadInput, Stuck
from shoal.simulate.policies import POLICIES
from shoal.simulate.referee.declaring import Declaring
from shoal.simulate.referee.engine import Cluster, simulate
from shoal.simulate.referee.profiles import Application
from shoal.simulate.referee.workload import Submission
from shoal.simulate.report import record_of
from tests.simulate.measured import write_application


@pytest.fixture
def application(tmp_path):
    return Application(write_application(tmp_path / "toy", noise=3.0))


def submissions(application, *rows):
    return [Submission(f"job-{i}", at, application, n, b) for i, (at, n, b) in enumerate(rows)]


def test_a_job_starts_at_the_first_decision_after_its_submission(application):
    run = simulate(submissions(application, (61.0, 1, 8)), Fifo(skip=True), Cluster(nodes=1))
    assert run.jobs[0].started == 120.0
    assert run.jobs[0].completed == 120.0 + 30.0 + 200.0
    assert run.makespan == 360.0
    assert run.busy[0] == (120.0, 1, 0)


@pytest.mark.slow
def test_strict_fifo_lets_nobody_pass_and_skip_does(application):
    jobs = submissions(application, (0, 3, 24), (1, 4, 32), (2, 1, 8))
    strict = simulate(jobs, Fifo(skip=False), Cluster(nodes=1))
    skip = simulate(jobs, Fifo(skip=True), Cluster(nodes=1))
    assert [job.started for job in skip.jobs][2] == 60.0
    started = [job.started for job in strict.jobs]
    assert started[1] > started[0]
    assert started[2] > started[1]
    assert record_of(strict, "fifo", "toy", "none").wait > record_of(skip, "x", "toy", "none").wait


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_brings_every_job_to_its_end_without_taking_more_than_there_is(application, name):
    jobs = submissions(application, *((30.0 * i, 1 + i % 4, 8 + 8 * (i % 4)) for i in range(12)))
    for information in ("none", "declared", "profiles"):
        run = simulate(jobs, POLICIES[name](information), Cluster(nodes=2))
        assert all(job.completed is not None for job in run.jobs)
        assert all(used <= 8 for _, used, _ in run.busy)
        record = record_of(run, name, "toy", information)
        assert record.p50 <= record.p90 <= record.p99
        assert record.ftf_max >= record.ftf_p95 > 0
        assert record.makespan >= max(job.completed for job in run.jobs)
        again = simulate(jobs, POLICIES[name](information), Cluster(nodes=2))
        assert [job.completed for job in again.jobs] == [job.completed for job in run.jobs]


def test_jobs_over_several_nodes_that_share_one_are_slowed(tmp_path):
    application = Application(write_application(tmp_path / "toy"))
    jobs = submissions(application, (0, 3, 24), (0, 3, 24))

    def ends(interference):
        cluster = Cluster(nodes=3, gpus_per_node=2, interference=interference)
        return [job.completed for job in simulate(jobs, Fifo(skip=True), cluster).jobs]

    assert ends(0.5) == [end for end in ends(0.5) if end]
    assert max(ends(0.5)) > max(ends(0.0))


@pytest.mark.slow
def test_who_declares_wrongly_is_served_all_the_same(application):
    jobs = submissions(application, *((30.0 * i, 1 + i % 4, 8 + 8 * (i % 4)) for i in range(12)))

    def ends(**off):
        run = simulate(jobs, POLICIES["shoal"]("declared"), Cluster(nodes=1), Declaring(**off))
        return [job.completed for job in run.jobs]

    assert None not in ends(error=4.0, liars=0.5)
    assert ends(error=4.0) == ends(error=4.0)
    assert ends(error=4.0) != ends(error=4.0, seed=1)
    factors = Declaring(liars=1.0).factors(jobs)
    assert set(factors.values()) == {0.1}


def test_a_job_larger_than_the_cluster_is_named(application):
    with pytest.raises(Stuck, match="job-0 of 1 jobs will never start on 4 GPUs"):
        simulate(submissions(application, (0, 5, 32)), Fifo(skip=True), Cluster(nodes=1))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"nodes": 0}, "a node with a GPU"),
        ({"interval": 0.0}, "0 seconds apart"),
        ({"interval": float("nan")}, "nan seconds apart"),
        ({"restart": -1.0}, "cannot take -1 seconds"),
        ({"interference": 1.0}, "from 0 to below 1"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(bad, said):
    with pytest.raises(BadInput, match=said):
        Cluster(**bad)
