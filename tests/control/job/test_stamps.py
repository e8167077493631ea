"""Stamps that other clocks have written: of nodes, and of a controller before the clock was set back."""

from __future__ import annotations

import msgspec
import pytest

from shoal.cluster.simulated import Script
from shoal.objects.job import Limits, Restart
from shoal.objects.quantities import Seconds

from .world import World, gang, slots

FOR_EVER = Script()


def test_a_limit_counts_from_now_when_its_start_lies_in_the_future():
    world = World(gang(1, limits=Limits(wall_time=Seconds(10))), lambda _: FOR_EVER)
    world.allocate(slots("0"))
    world.settle()
    world.status(started=world.clock.now() + 7200.0)
    world.settle()
    assert world.job.status.started == world.clock.now()
    world.advance(9.0)
    assert world.job.status.phase == "Running"
    world.advance(2.0)
    assert world.job.status.reason == "WallTimeExceeded"


def test_a_start_is_not_before_the_job_was_created_whatever_a_nodes_clock_says():
    world = World(gang(1), lambda _: FOR_EVER)
    world.allocate(slots("0"))
    world.settle()
    created = world.clock.now() + 50.0
    world.clock.advance(100.0)
    metadata = msgspec.structs.replace(world.job.metadata, created=created)
    world.job = msgspec.structs.replace(world.job, metadata=metadata)
    world.status(started=0.0)
    world.settle()
    assert world.job.status.started == created


@pytest.mark.parametrize(("ahead", "waits"), [(7200.0, False), (3.0, True)])
def test_a_backoff_that_cannot_be_is_over(ahead: float, waits: bool):
    restart = Restart(limit=3, backoff=Seconds(5))
    world = World(gang(1, restart=restart), lambda _: Script(run_seconds=1.0, exit_code=1))
    world.allocate(slots("0"))
    world.advance(1.5)
    assert len(world.started) == 1
    world.status(restart_after=world.clock.now() + ahead)
    world.settle()
    assert len(world.started) == (1 if waits else 2)


def test_the_time_to_live_counts_from_now_when_the_end_lies_in_the_future():
    world = World(gang(1, ttl_after_finished=Seconds(10)), lambda _: Script(run_seconds=1.0))
    world.allocate(slots("0"))
    world.advance(2.0)
    assert world.job.status.phase == "Succeeded"
    world.status(finished=world.clock.now() + 7200.0)
    world.advance(9.0)
    assert not world.gone
    world.advance(2.0)
    assert world.gone
