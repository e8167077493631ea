"""The server is killed after any of its writes, again and again: no node is ever promised more than it
has, every job comes to the end that it would have come to, and no index runs twice at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.cluster.simulated import Script
from shoal.control.queue_usage import holds_of
from shoal.control.rows import node_row
from shoal.objects.elastic import with_coordinator
from shoal.objects.job import Job, JobSpec
from shoal.objects.kinds import JOB
from shoal.objects.node import Capacity, Taint
from shoal.objects.task import TaskSpec
from shoal.store.base import SYSTEM
from shoal.store.memory import MemoryStore
from tests.control import world as worlds
from tests.control.world import World, capacity, role


@pytest.fixture(params=[1, 2])
def edition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both scheduling cores keep these promises."""
    monkeypatch.setattr(worlds, "EDITION", request.param)


class Killed(BaseException):
    """The process is no more."""


class Watched(MemoryStore):
    """Dies after the writes whose numbers it is given; looks at the world after each."""

    world: World

    def __init__(self, kills: set[int]) -> None:
        super().__init__()
        self.kills = kills
        self.writes = 0

    def patch_status(self, *args: Any, **kwargs: Any) -> Any:
        result = super().patch_status(*args, **kwargs)
        self.writes += 1
        if kwargs["writer"] == "scheduler":
            check_promises(self.world)
        if self.writes in self.kills:
            raise Killed
        return result


def check_promises(world: World) -> None:
    nodes = {node.metadata.name: node_row(node) for node in world.nodes.all()}
    tasks = world.cluster.list().tasks
    used: Counter[str] = Counter()
    devices: Counter[str] = Counter()
    for record in world.store.list(JOB, actor=SYSTEM).records:
        job: Job = record.object
        own = [task for task in tasks if task.spec.job_uid == job.metadata.uid]
        for hold in holds_of(job, own):
            used[hold.node] += hold.cpu
            devices.update(f"{hold.node}/{device}" for device in hold.devices)
    live = Counter(
        (task.spec.job_uid, task.spec.role, task.spec.index) for task in tasks if task.phase != "Ended"
    )
    assert max(live.values(), default=0) <= 1
    for name, cpu in used.items():
        assert cpu <= nodes[name].cpu, f"{name} is promised {cpu}"
    assert not [device for device, count in devices.items() if count > 1]


def behave(spec: TaskSpec) -> Script:
    return Script(run_seconds=2.0 + spec.index % 3, stops_after_seconds=0.7 * (spec.index % 2))


def begin(
    kills: set[int], nodes: dict[str, Capacity], how: Callable[[TaskSpec], Script]
) -> tuple[World, Callable[[float], None]]:
    """A world, and how to let time pass in it."""
    store = Watched(kills)
    world = World(nodes, how, store)
    store.world = world

    def run(seconds: float) -> None:
        end = world.clock.monotonic() + seconds
        while (left := end - world.clock.monotonic()) > 1e-9:
            try:
                world.run(left)
            except Killed:
                world.boot()

    return world, run


def give_way(kills: set[int]) -> World:
    """An elastic job gives way to an urgent one, and gets back what it gave."""

    def how(spec: TaskSpec) -> Script:
        if spec.job == "urgent":
            return Script(run_seconds=3.0)
        whole = None if spec.role == "coordinator" else 12.0
        return Script(run_seconds=whole, stops_after_seconds=0.7 * (1 + spec.index % 2))

    world, run = begin(kills, {"a": capacity(4.1)}, how)
    run(0.5)
    spec = JobSpec(roles=(role(4, min_replicas=1),), runtime="elastic")
    world.submit("elastic", *with_coordinator(spec, "python").roles, runtime="elastic")
    run(2.0)
    world.submit("urgent", role(2), priority=9)
    run(40.0)
    return world


def play(kills: set[int]) -> World:
    """Gangs, an array, an elastic job, devices, a suspension and a drained node."""
    world, run = begin(kills, {"a": capacity(4, gpus=2), "b": capacity(3)}, behave)
    run(0.5)
    world.submit("gang", role(3), runtime="torchrun")
    world.array("array", "0-7", 3)
    run(1.0)
    world.submit("elastic", role(5, min_replicas=1), runtime="elastic", priority=5)
    world.submit("devices", role(2, gpu=1))
    run(1.3)
    world.edit("gang", suspend=True)
    taint = (Taint(key="drain", effect="NoExecute"),)
    world.edit_node("b", unschedulable=True, taints=taint)
    run(2.0)
    world.edit("gang", suspend=False)
    world.edit_node("b", unschedulable=False, taints=())
    run(60.0)
    return world


NAMES = ("gang", "array", "elastic", "devices")


def outcome(world: World) -> dict[str, tuple[str, int, int]]:
    statuses = {name: world.job(name).status for name in NAMES}
    return {
        name: (status.phase, status.failures, status.infrastructure_failures)
        for name, status in statuses.items()
    }


@pytest.mark.slow
@pytest.mark.usefixtures("edition")
def test_without_a_kill_all_jobs_succeed():
    world = play(set())
    assert outcome(world) == dict.fromkeys(NAMES, ("Succeeded", 0, 0))
    assert "PlacementRefused" not in [reason for _, reason in world.diary.events]
    assert world.runner.failures() == ()
    assert world.cluster.list().tasks == ()


@pytest.mark.slow
@pytest.mark.usefixtures("edition")
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in (1, 2, 3))]
)
def test_killed_after_each_single_write(part: int):
    writes = play(set()).store.writes
    assert writes > 30
    for kill in range(1 + part, writes + 1, 4):
        world = play({kill})
        assert outcome(world) == dict.fromkeys(NAMES, ("Succeeded", 0, 0)), f"killed after {kill}"
        assert world.cluster.list().tasks == ()


def check_gave_way(world: World) -> None:
    for name in ("elastic", "urgent"):
        status = world.job(name).status
        assert (status.phase, status.failures, status.infrastructure_failures) == ("Succeeded", 0, 0)
    codes = [code for name, code, _ in world.diary.decisions if name == "elastic"]
    assert codes.count("Preempted") >= 1
    assert "PlacementRefused" not in [reason for _, reason in world.diary.events]
    assert world.cluster.list().tasks == ()


@pytest.mark.usefixtures("edition")
def test_what_was_given_up_comes_back():
    world = give_way(set())
    check_gave_way(world)
    given = [text for name, code, text in world.diary.decisions if code == "Preempted"]
    assert given == ["2 tasks give up their places for default/urgent; 3 go on"]
    assert world.job("elastic").status.allocation.beneficiaries == (), "it has grown again"


@pytest.mark.slow
@pytest.mark.usefixtures("edition")
def test_giving_way_killed_after_each_single_write():
    writes = give_way(set()).store.writes
    assert writes > 10
    for kill in range(1, writes + 1):
        world = give_way({kill})
        # a server that dies between a decision's write and its note in history leaves no note of it
        assert world.job("elastic").status.writers["scheduler"] > 2
        for name in ("elastic", "urgent"):
            status = world.job(name).status
            said = (status.phase, status.failures, status.infrastructure_failures)
            assert said == ("Succeeded", 0, 0), f"{name}, killed after {kill}"
        ended = [text for _, text in world.diary.events if text.startswith("ended elastic")]
        assert len(set(ended)) >= 6, "two were started again"


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(kills=st.sets(st.integers(1, 150), max_size=40))
def test_killed_after_many_writes(kills: set[int]):
    world = play(kills)
    assert outcome(world) == dict.fromkeys(NAMES, ("Succeeded", 0, 0))
    assert "PlacementRefused" not in [reason for _, reason in world.diary.events]
