"""How long tasks have been on nodes, and the job that may be there only for so long."""

from __future__ import annotations

import pytest

from shoal.cluster.simulated import Script
from shoal.control.job.observe import hours_at, seconds_until
from shoal.objects.job import ArraySpec, JobSpec, Limits, NodeTime, Restart, Role
from shoal.objects.quantities import Seconds

from .world import World, gang, slots

FOR_EVER = Script()


def used(world: World) -> float:
    """Node seconds until now."""
    return hours_at(world.job.status.node_time, world.clock.now()) * 3600


def test_a_node_counts_once_for_as_long_as_a_task_is_there():
    world = World(gang(3), lambda _: FOR_EVER)
    world.advance(100)
    assert used(world) == 0
    world.allocate(slots("0-1", "n0"), slots("2", "n1"))
    world.advance(100)
    assert used(world) == pytest.approx(200)
    world.edit(suspend=True)
    world.advance(100)
    assert world.job.status.phase == "Suspended"
    assert used(world) == pytest.approx(200, abs=1)
    assert world.job.status.node_time.nodes == 0


def test_it_ends_the_job_whatever_the_number_of_nodes():
    limits = Limits(node_hours=10 / 3600)
    world = World(gang(2, limits=limits), lambda _: FOR_EVER)
    world.allocate(slots("0", "n0"), slots("1", "n1"))
    world.advance(4.9)
    assert world.job.status.phase == "Running"
    world.advance(0.2)
    status = world.job.status
    assert (status.phase, status.reason) == ("Failed", "NodeHoursExceeded")
    assert status.message == "it used its budget of 0.00277778 node hours"
    assert {t.outcome.stop_reason for t in world.acknowledged if t.outcome} == {"NodeHours"}


def test_restarts_use_the_same_budget():
    limits, restart = Limits(node_hours=10 / 3600), Restart(limit=100, backoff=Seconds(1))
    world = World(gang(1, limits=limits, restart=restart), lambda _: Script(run_seconds=3, exit_code=1))
    world.allocate(slots("0"))
    world.advance(100)
    assert world.job.status.reason == "NodeHoursExceeded"
    assert len(world.started) == 4
    assert used(world) == pytest.approx(10, abs=0.1)


def test_success_comes_first():
    world = World(gang(1, limits=Limits(node_hours=10 / 3600)), lambda _: Script(run_seconds=10))
    world.allocate(slots("0"))
    world.advance(20)
    assert world.job.status.phase == "Succeeded"


def test_indices_of_an_array_share_their_nodes():
    spec = JobSpec(roles=(Role(command=("x",)),), array=ArraySpec(indices="0-3"))
    world = World(spec, lambda spec: Script(run_seconds=10.0 * (1 + spec.index)))
    world.allocate(slots("0-1", "n0"), slots("2-3", "n1"))
    world.advance(100)
    assert world.job.status.phase == "Succeeded"
    assert used(world) == pytest.approx(20 + 40, abs=0.1)


def test_what_ended_while_nobody_looked_has_not_gone_on():
    world = World(gang(1, limits=Limits(node_hours=1.0)), lambda _: Script(run_seconds=5, exit_code=1))
    world.allocate(slots("0"))
    world.settle()
    world.clock.advance(3 * 3600.0)
    world.settle()
    assert world.job.status.reason != "NodeHoursExceeded"
    assert used(world) == pytest.approx(5, abs=0.1)


def test_a_start_in_the_future_counts_from_now():
    world = World(gang(1), lambda _: FOR_EVER)
    world.allocate(slots("0"))
    world.settle()
    time = world.job.status.node_time
    world.status(node_time=NodeTime(nodes=time.nodes, since=world.clock.now() + 7200))
    world.settle()
    world.advance(10)
    assert used(world) == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (NodeTime(), None),
        (NodeTime(node_seconds=1800), None),
        (NodeTime(nodes=2, since=100.0), 1800.0),
        (NodeTime(node_seconds=1800, nodes=1, since=50.0), 1750.0),
        (NodeTime(node_seconds=4000, nodes=1, since=100.0), 0.0),
    ],
)
def test_when_it_is_used_up(time: NodeTime, seconds: float | None):
    assert seconds_until(time, 1.0, 100.0) == (None if seconds is None else pytest.approx(seconds))
