"""One bad object never stops the others: written straight into the store, as another version or an
intruder would."""

from __future__ import annotations

import msgspec
import pytest

from shoal.cluster.simulated import run_for
from shoal.control.scheduling import UNUSABLE
from shoal.objects.errors import Exists
from shoal.objects.job import Topology
from shoal.objects.kinds import JOB, NODE, QUEUE
from shoal.schedule.decide import Decider
from shoal.store.base import SYSTEM
from shoal.testing.store.harness import newer_job
from shoal.testing.store.raw import rewrite
from tests.control.world import World, capacity, role


def test_a_job_whose_slots_make_no_sense_stops_no_other_and_says_so() -> None:
    world = World({"a": capacity(4)}, run_for(None))
    world.submit("bad", role(2))
    world.run()
    assert len(world.running("bad")) == 2
    slots = [{"role": "", "indices": "zero", "node": "a"}]
    rewrite(world.store, JOB, "bad", status=lambda old: old | {"allocation": {"id": 2, "slots": slots}})
    world.submit("good", role(1))
    world.submit("large", role(3))
    world.run(5)
    assert len(world.running("good")) == 1
    assert not world.running("large"), "the bad job's tasks still use the node"
    bad = world.job("bad").status.scheduling
    assert bad.code == UNUSABLE
    assert "zero" in bad.message
    assert [what for name, what, _ in world.diary.decisions if name == "bad"][-1] == UNUSABLE
    assert world.store.get(type(world.queue("q")), "", "default", actor=SYSTEM).status.running == 2


def test_a_job_that_makes_the_decision_fail_is_left_out_until_it_changes(monkeypatch) -> None:
    decide = Decider._decide

    def fragile(self, snapshot, policy, now):
        if any(row.name.startswith("poison") and row.priority == 7 for row in snapshot.jobs):
            raise ZeroDivisionError("injected")
        return decide(self, snapshot, policy, now)

    monkeypatch.setattr(Decider, "_decide", fragile)
    world = World({"a": capacity(8)}, run_for(None))
    for number in range(3):
        world.submit(f"poison-{number}", role(1), priority=7)
        world.submit(f"fine-{number}", role(1))
    world.run(5)
    for number in range(3):
        assert world.running(f"fine-{number}")
        assert world.why(f"poison-{number}") == UNUSABLE
        assert "injected" in world.job(f"poison-{number}").status.scheduling.message
    world.edit("poison-1", priority=6)
    world.run(5)
    assert world.running("poison-1") and world.why("poison-1") == ""
    assert not world.running("poison-0")


def test_a_node_that_makes_the_decision_fail_is_left_out_until_it_changes(monkeypatch) -> None:
    """With it every job seems to be at fault: none of them is left out for that."""
    decide = Decider._decide

    def fragile(self, snapshot, policy, now):
        if any(row.name == "b" and row.ready and not row.labels for row in snapshot.nodes):
            raise ZeroDivisionError("injected")
        return decide(self, snapshot, policy, now)

    world = World({name: capacity(2) for name in "abc"}, run_for(None))
    world.submit("holds", role(6))
    world.run()
    monkeypatch.setattr(Decider, "_decide", fragile)
    world.edit("holds", suspend=True)
    world.run(5)
    for number in range(4):
        world.submit(f"fine-{number}", role(1))
    world.run(5)
    left_out = next(c for c in world.node("b").status.conditions if c.type == "Unusable")
    assert "ZeroDivisionError: injected" in left_out.message
    assert world.diary.said["b", "Unusable"] == [left_out.message]
    for number in range(4):
        assert set(world.running(f"fine-{number}").values()) <= {"a", "c"}
        assert world.running(f"fine-{number}")
    world.submit("more", role(1))
    world.run(5)
    assert not world.running("more")
    world.edit_node("b", labels={"mended": "yes"})
    world.run(5)
    assert set(world.running("more").values()) == {"b"}
    assert "Unusable" not in {c.type for c in world.node("b").status.conditions}


def test_a_job_waits_for_a_level_of_the_topology_that_comes_later() -> None:
    world = World({"a": capacity(4)}, run_for(None))
    world.submit("racked", role(2), topology=Topology(required="rack"))
    world.submit("plain", role(1))
    world.run(5)
    assert world.running("plain") and not world.running("racked")
    waits = world.job("racked").status.scheduling
    assert waits.code == UNUSABLE and "the topology has no level rack" in waits.message
    world.levels = ("rack",)
    world.edit_node("a", labels={"rack": "r1"})
    world.run(5)
    assert len(world.running("racked")) == 2


def test_an_undecodable_job_keeps_its_tasks_and_comes_back_when_it_is_mended() -> None:
    world = World({"a": capacity(4)}, run_for(None))
    world.submit("newer", role(3))
    world.run()
    before = world.running("newer")
    rewrite(world.store, JOB, "newer", lambda spec: spec | {"runtime": "quantum"})
    world.store.create(newer_job("other"), actor=SYSTEM)
    world.submit("good", role(1))
    world.submit("large", role(4))
    world.run(30)
    uids = {task.spec.job for task in world.cluster.list().tasks if task.phase == "Running"}
    assert uids == {"newer", "good"}, "its tasks go on, their capacity counts, and others start"
    assert sorted(each.name for each in world.jobs.undecodable()) == ["newer", "other"]
    rewrite(world.store, JOB, "newer", lambda spec: spec | {"runtime": "plain"})
    world.run(5)
    assert world.running("newer") == before
    assert world.job("newer").status.phase == "Running"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("decodable", [False, True])
def test_a_job_that_cannot_be_used_can_be_deleted(restarted: bool, decodable: bool) -> None:
    """Its tasks end, its folders go, and its finalizer is removed by its metadata alone."""
    world = World({"a": capacity(4), "b": capacity(4)}, run_for(None))
    world.submit("newer", role(6), clean_up="All")
    world.run()
    slots = [{"role": "", "indices": "zero", "node": "a"}]
    if decodable:
        rewrite(world.store, JOB, "newer", status=lambda old: old | {"allocation": {"slots": slots}})
    else:
        rewrite(world.store, JOB, "newer", lambda spec: spec | {"runtime": "quantum"})
    if restarted:
        world.runner.stop(0.0)
        world.boot()
    world.run(5)
    world.cluster.silence("a")
    world.store.delete(JOB, "default", "newer", actor=SYSTEM)
    world.run(30)
    with pytest.raises(Exists):  # a node that does not answer may run its tasks
        world.submit("newer", role(1))
    world.cluster.silence("a", False)
    world.run(30)
    assert not world.cluster.list().tasks
    assert not world.jobs.undecodable()
    world.submit("newer", role(8))
    world.run(5)
    assert len(world.running("newer")) == 8


@pytest.mark.parametrize("restarted", [False, True])
def test_an_undecodable_node_or_queue_costs_no_job_its_slots(restarted: bool) -> None:
    world = World({"a": capacity(2), "b": capacity(2)}, run_for(None))
    world.queue("team")
    world.submit("mine", role(2), queue="team")
    world.run()
    place = world.slots("mine")
    rewrite(world.store, NODE, place[0], lambda spec: spec | {"taints": "none"})
    rewrite(world.store, QUEUE, "team", lambda spec: spec | {"weight": "heavy"})
    if restarted:
        world.runner.stop(0.0)
        world.boot()
    world.submit("next", role(2))
    world.run(30)
    assert world.slots("mine") == place and len(world.running("mine")) == 2
    assert set(world.slots("next").values()) == {"a", "b"} - set(place.values())


def test_a_node_that_flips_calls_for_the_jobs_on_it_alone() -> None:
    world = World({"a": capacity(1), "b": capacity(1)}, run_for(None))
    world.submit("on-a", role(1))
    world.submit("on-b", role(1))
    for number in range(20):
        world.submit(f"waits-{number}", role(1))
    world.run(5)
    node = next(name for name in ("a", "b") if name in world.slots("on-a").values())
    old = world.nodes.get(("", node))
    away = tuple(
        msgspec.structs.replace(c, status="False") if c.type == "Ready" else c
        for c in old.status.conditions
    )
    new = msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, conditions=away))
    sources = next(w.controller for w in world.runner._workers if w.controller.name == "job").sources()
    keys = next(source for source in sources if source.cache is world.nodes).keys(old, new)
    assert keys == [("default", "on-a")]


def test_a_queue_whose_numbers_make_no_sense_stops_no_decision() -> None:
    world = World({"a": capacity(2)}, run_for(None))
    world.queue("odd")
    rewrite(world.store, QUEUE, "odd", lambda spec: spec | {"weight": -1.0})
    world.submit("there", role(1), queue="odd")
    world.submit("good", role(1))
    world.run(5)
    assert world.running("good") and world.running("there")
