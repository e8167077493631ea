from __future__ import annotations

import time

import msgspec
import pytest

from shoal.clock import SystemClock
from shoal.cluster.simulated import Script, run_for
from shoal.control.lease import AlwaysLeader, NotLeader
from shoal.control.queue_usage import holds_of
from shoal.objects.job import Gang
from shoal.objects.node import Taint
from shoal.objects.quantities import CpuMillis
from shoal.objects.queue import Quota
from tests.control import world as worlds
from tests.control.world import World, capacity, role


@pytest.fixture(autouse=True, params=[1, 2])
def edition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both scheduling cores keep these promises."""
    monkeypatch.setattr(worlds, "EDITION", request.param)


def test_a_job_is_placed_started_and_its_slots_are_given_back():
    world = World(behave=run_for(5))
    world.submit("j", role(3))
    world.run(1)
    assert world.running("j") == {0: "a", 1: "a", 2: "a"}
    status = world.job("j").status
    assert (status.phase, status.allocation.reason, status.allocation.id) == ("Running", "Started", 1)
    world.run(6)
    status = world.job("j").status
    assert (status.phase, status.allocation.slots) == ("Succeeded", ())
    assert world.runner.failures() == ()


def test_a_waiting_job_says_why_and_starts_when_it_can():
    world = World({"a": capacity(2)}, run_for(5))
    world.submit("first", role(2))
    world.run(1)
    world.submit("second", role(2))
    world.run(1)
    scheduling = world.job("second").status.scheduling
    assert (scheduling.code, scheduling.evidence["fitting"]) == ("NoRoom", {"worker": 0})
    assert scheduling.message.startswith("it needs 2 x worker at once, and there is room for 0 x worker")
    assert scheduling.message.endswith("for lack of CPU; most is held by default/first")
    world.run(5)
    assert world.running("second") == {0: "a", 1: "a"}
    assert world.why("second") == ""
    assert ("second", "NoRoom", scheduling.message) in world.diary.decisions


@pytest.mark.slow
def test_an_array_keeps_its_parallelism_busy_to_the_end():
    world = World(behave=run_for(1))
    world.array("j", "0-19", 3)
    most = 0
    for _ in range(60):
        world.run(0.25)
        most = max(most, len(world.running("j")))
    assert most == 3
    status = world.job("j").status
    assert (status.phase, status.roles[0].succeeded) == ("Succeeded", 20)


def test_preempted_capacity_is_used_only_once_the_tasks_have_gone():
    slow = Script(stops_after_seconds=3.0)
    world = World({"a": capacity(2)}, lambda spec: slow)
    world.submit("old", role(2))
    world.run(1)
    world.edit("old", suspend=True)
    world.submit("new", role(2))
    world.run(2)
    assert (world.slots("new"), world.why("new")) == ({}, "Departing")
    world.run(3)
    assert world.running("new") == {0: "a", 1: "a"}
    assert world.job("old").status.phase == "Suspended"
    world.edit("new", cancelled=True)
    world.edit("old", suspend=False)
    world.run(8)
    assert world.running("old") == {0: "a", 1: "a"}


def test_a_drained_node_is_left_and_used_again_afterwards():
    world = World()
    world.submit("j", role(4))
    world.run(1)
    assert set(world.slots("j").values()) == {"a"}
    world.edit_node("a", unschedulable=True, taints=(Taint(key="drain", effect="NoExecute"),))
    world.run(2)
    assert world.running("j") == dict.fromkeys(range(4), "b")
    world.edit_node("a", unschedulable=False, taints=())
    world.submit("k", role(4))
    world.run(1)
    assert set(world.running("k").values()) == {"a"}


def test_nothing_is_replaced_on_a_silent_node_until_it_is_declared_lost():
    world = World()
    world.submit("j", role(4), runtime="torchrun")
    world.run(1)
    world.cluster.silence("a")
    world.run(30)
    assert set(world.slots("j").values()) == {"a"}
    ready = next(c for c in world.node("a").status.conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "Silent")
    world.edit_node("a", lost=True)
    world.run(2)
    assert world.running("j") == dict.fromkeys(range(4), "b")


def test_an_array_goes_on_elsewhere_when_a_node_is_lost():
    world = World(behave=run_for(None))
    world.array("j", "0-9", 8)
    world.run(1)
    world.cluster.silence("a")
    world.run(1)
    world.edit_node("a", lost=True)
    world.run(2)
    assert len(world.running("j")) == 4
    assert set(world.running("j").values()) == {"b"}


def test_a_refused_placement_goes_elsewhere_and_costs_no_restart():
    world = World({"a": capacity(2), "b": capacity(4)})
    world.run(0.5)
    world.cluster.shrink("a", capacity(1))  # the scheduler has not heard of it yet
    world.submit("j", role(2))
    world.run(1)
    status = world.job("j").status
    assert world.running("j") == {0: "b", 1: "b"}
    assert (status.refusal.node, status.infrastructure_failures, status.failures) == ("a", 1, 0)
    assert ("j", "PlacementRefused") in world.diary.events


def test_the_only_node_that_refuses_is_tried_again_later():
    world = World({"a": capacity(2)})
    world.run(0.5)
    world.cluster.shrink("a", capacity(1))
    world.submit("j", role(2))
    world.run(0.1)
    assert world.why("j") == "PlacementRefused"
    world.cluster.report()
    world.run(3)
    assert world.why("j") == "TooLarge"
    world.cluster.shrink("a", capacity(2))
    world.cluster.report()
    world.run(3)
    assert world.running("j") == {0: "a", 1: "a"}


def test_fewer_and_more_replicas():
    world = World()
    world.submit("j", role(2, min_replicas=1), runtime="elastic")
    world.run(1)
    assert world.running("j") == {0: "a", 1: "a"}
    world.edit("j", roles=(role(4, min_replicas=1),))
    world.run(1)
    assert sorted(world.running("j")) == [0, 1, 2, 3]
    world.edit("j", roles=(role(1, min_replicas=1),))
    world.run(2)
    assert sorted(world.running("j")) == [0]


def test_quota_holds_jobs_back_until_it_is_raised():
    world = World()
    queue = world.queue("small", quota=Quota(cpu=CpuMillis(2000)))
    world.submit("one", role(2), queue="small")
    world.submit("two", role(1), queue="small")
    world.run(1)
    assert world.why("two") == "Limit"
    spec = msgspec.structs.replace(queue.spec, quota=Quota(cpu=CpuMillis(3000)))
    current = world.queues.get(("", "small"))
    world.queues.update(msgspec.structs.replace(current, spec=spec))
    world.run(1)
    assert world.running("two")


def test_gang_min_starts_early_and_grows_later():
    world = World(
        {"a": capacity(3)}, lambda spec: Script(run_seconds=5 if spec.job == "other" else None)
    )
    world.submit("other", role(1))
    world.run(0.5)
    world.submit("j", role(3), gang=Gang(min=2))
    world.run(1)
    assert sorted(world.running("j")) == [0, 1]
    world.run(5)
    assert sorted(world.running("j")) == [0, 1, 2]


@pytest.mark.slow
def test_a_plan_stops_where_the_lease_is_lost_and_goes_on_with_the_next():
    class Fading(AlwaysLeader):
        checks_left = 10**6

        def enter(self) -> bool:
            return self.checks_left > 0

        def check(self) -> None:
            self.checks_left -= 1
            if self.checks_left < 0:
                raise NotLeader("gone")

    guard = Fading()
    world = World({"a": capacity(8)}, guard=guard)
    world.run(0.5)
    for number in range(4):
        world.submit(f"j{number}", role(2))
    guard.checks_left = 2  # two of the four allocations
    world.run(0.5)
    assert [len(world.slots(f"j{number}")) for number in range(4)] == [2, 2, 0, 0]
    assert world.runner.failures() == ()
    guard.checks_left = 10**6
    world.run(1)
    assert all(len(world.running(f"j{number}")) == 2 for number in range(4))


@pytest.mark.slow
def test_threads_and_the_machines_clock_drive_it_too():
    world = World(behave=run_for(0.05), clock=SystemClock())
    world.runner.start()
    try:
        world.submit("gang", role(3))
        world.array("array", "0-9", 4)
        deadline = time.monotonic() + 60
        while {world.job(name).status.phase for name in ("gang", "array")} != {"Succeeded"}:
            assert time.monotonic() < deadline, [world.job(name).status for name in ("gang", "array")]
            world.cluster.settle()
            time.sleep(0.005)
    finally:
        assert world.runner.stop(30)
    assert world.runner.failures() == ()


def test_devices_follow_their_tasks():
    world = World({"a": capacity(4, gpus=4)})
    world.submit("one", role(1, gpu=1))
    world.run(0.5)
    world.submit("two", role(2, gpu=1))
    world.run(0.5)
    devices = {
        (task.spec.job, task.spec.index): task.spec.placement.devices
        for task in world.cluster.list().tasks
    }
    assert devices == {("one", 0): ("g0",), ("two", 0): ("g1",), ("two", 1): ("g2",)}


def test_a_new_server_changes_nothing_that_is_settled():
    world = World({"a": capacity(2)})
    world.submit("runs", role(2))
    world.submit("waits", role(1))
    world.run(1)
    before = [world.job(name) for name in ("runs", "waits")]
    world.boot()
    world.run(2)
    assert [world.job(name) for name in ("runs", "waits")] == before
    assert len(world.diary.decisions) == 2


def test_deleting_a_job_gives_everything_back():
    world = World({"a": capacity(2)})
    job = world.submit("j", role(2))
    world.run(1)
    world.jobs.delete(world.jobs.get(job.key))
    world.submit("next", role(2))
    world.run(3)
    assert world.jobs.get(job.key) is None
    assert world.running("next")


@pytest.mark.slow
def test_what_waits_is_told_in_portions_and_starts_come_first():
    world = World({"a": capacity(1)})
    for number in range(250):
        world.submit(f"j{number:03}", role(1))
    world.run(0.0)
    world.clock.advance(0.002)
    world.runner.run_once()
    assert world.slots("j000") == {0: "a"}
    assert (world.why("j001"), world.why("j249")) == ("NoRoom", "")
    world.run(1)
    assert [world.why(f"j{number:03}") for number in (1, 120, 249)] == ["NoRoom"] * 3


@pytest.mark.slow
def test_numbers_are_renewed_now_and_then():
    world = World({"a": capacity(4)})
    world.submit("one", role(2))
    world.run(0.5)
    world.submit("large", role(3))
    world.run(0.5)
    assert world.job("large").status.scheduling.evidence["fitting"] == {"worker": 2}
    since = world.job("large").status.scheduling.since
    world.submit("two", role(1))
    world.run(1)
    assert world.job("large").status.scheduling.evidence["fitting"] == {"worker": 2}
    world.run(65)
    scheduling = world.job("large").status.scheduling
    assert (scheduling.evidence["fitting"], scheduling.since) == ({"worker": 1}, since)


def test_an_allocation_that_was_not_started_yet_is_held():
    world = World()
    world.submit("j", role(2))
    world.run(1)
    holds = holds_of(world.job("j"), ())
    assert [(h.index, h.slot, h.live, h.claimed) for h in holds] == [
        (0, True, False, True),
        (1, True, False, True),
    ]
