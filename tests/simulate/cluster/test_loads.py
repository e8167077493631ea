"""The loads that scale is measured with are what their sources say."""

from __future__ import annotations

from collections import Counter

import pytest

from shoal.schedule.cycle import planner
from shoal.schedule.cycle.rows import Rules
from shoal.schedule.cycle.steps import Preempt, Reserve, Start
from shoal.simulate.cluster import kai, kueue
from shoal.simulate.cluster.engine import Options, simulate
from shoal.simulate.cluster.full import Sizes, full
from shoal.simulate.cluster.world import World


def test_kueue_baseline_is_15000_jobs_that_take_66_seconds_at_least() -> None:
    """scheduling-S2: 30 queues of 20 cores, a cohort may use its own 120."""
    load = kueue.baseline()
    assert len(load.arrivals) == 15_000
    assert load.bound == pytest.approx(66.0)
    assert sum(bool(queue.parent) for queue in load.cluster.queues) == 30
    assert load.cluster.nodes[0].amounts == {"cpu": 600_000}
    assert load.arrivals[-1].at == pytest.approx(49 * 1.2)
    assert len({arrival.job.name for arrival in load.arrivals}) == 15_000


@pytest.mark.slow
def test_kueue_large_scale_is_50000_jobs_in_1000_queues() -> None:
    """scheduling-S2."""
    load = kueue.large_scale()
    assert len(load.arrivals) == 50_000
    assert load.bound == pytest.approx(4.025)
    assert sum(bool(queue.parent) for queue in load.cluster.queues) == 1000


def test_kueue_topology_binds_a_third_of_each_class_to_a_rack() -> None:
    """scheduling-S2: gangs of 2, 4 and 8 pods on 640 nodes in ten racks."""
    load = kueue.topology()
    assert load.bound == pytest.approx(66.0)
    kinds = Counter(
        (role.minimum, role.required or (role.preferred and "preferred") or "even")
        for arrival in load.arrivals
        for role in arrival.job.roles
    )
    assert kinds == {
        (2, "rack"): 3600, (2, "preferred"): 3600, (2, "even"): 3300,
        (4, "rack"): 1020, (4, "preferred"): 990, (4, "even"): 990,
        (8, "rack"): 510, (8, "preferred"): 510, (8, "even"): 480,
    }  # fmt: skip
    assert len(load.cluster.nodes) == 640
    assert len({node.labels["rack"] for node in load.cluster.nodes}) == 10


@pytest.mark.slow
def test_the_first_second_of_kueue_baseline_uses_nine_tenths_of_what_there_is() -> None:
    """scheduling-S2: 390 jobs come in the first second; all end, and the cores are busy until then."""
    load = kueue.baseline()
    first = [arrival for arrival in load.arrivals if arrival.at < 1.0]
    record = simulate(World(load.cluster, Rules()), first, Options(interval=0.01))
    assert not record.unfinished
    assert record.ended_at <= 1.5 + 1e-9
    assert record.utilisation("cpu") >= 0.9 - 1e-9


@pytest.mark.parametrize("nodes", [10, 30])
def test_a_large_job_takes_what_it_needs_of_a_queue_that_deserves_nothing(nodes: int) -> None:
    """scheduling-S1: exactly the jobs on a tenth of the nodes go, and then it starts."""
    world = World(kai.reclaim_large(nodes), Rules())
    world.decide(1e6)
    gone = [name for name, job in world.jobs.items() if job.tasks and not job.present]
    assert len(gone) == nodes // 10 * 8
    for name in gone:
        world.gone(name)
    plan = world.decide(1e6)
    assert [step.job for step in plan.steps if isinstance(step, Start)] == ["large"]
    assert not [step for step in plan.steps if isinstance(step, Preempt)]


def test_a_burst_starts_as_many_as_there_are_gpus() -> None:
    """One decision; who came first starts."""
    world = World(kai.burst(10, 100), Rules())
    plan = world.decide(1e6)
    started = sorted(step.job for step in plan.steps if isinstance(step, Start))
    assert started == [f"one-{at:06d}" for at in range(80)]
    assert world.held.parts()["gpu"] == 1.0


def test_small_gangs_and_a_large_one_start_at_once() -> None:
    """scheduling-S3, smaller."""
    for jobs, tasks in ((40, 3), (1, 120)):
        world = World(kai.gangs(30, jobs, tasks), Rules())
        plan = world.decide(1e6)
        assert sum(isinstance(step, Start) for step in plan.steps) == jobs
        assert world.held.parts()["cpu"] == 1.0


@pytest.mark.slow
def test_a_full_cluster_is_full_and_a_plan_for_it_breaks_no_rule() -> None:
    """A hundredth of the size that is measured."""
    sizes = Sizes(nodes=100, running=50, waiting=20, queues=10, families=5, racks=4)
    cluster = full(sizes)
    assert cluster == full(sizes)
    world = World(cluster, Rules())
    assert world.held.parts()["gpu"] > 0.85
    assert sum(not job.tasks for job in cluster.jobs) >= 20
    plan = world.decide(100_000.0)
    assert plan.steps
    assert plan == planner.plan(cluster, Rules(), 100_000.0)
    assert any(isinstance(step, Reserve) for step in plan.steps)
