from __future__ import annotations

import msgspec
import pytest

from shoal.cluster.base import Listing, NodeState, Task
from shoal.cluster.simulated import SimulatedCluster, run_for
from shoal.control.task_cache import NodeStates, TaskCache
from shoal.objects.errors import Unavailable
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Placement, TaskKey, TaskSpec
from shoal.testing.clock import VirtualClock
from shoal.testing.cluster import start_group


def spec(index: int, node: str = "a", job: str = "j") -> TaskSpec:
    return TaskSpec(
        namespace="default", name=f"{job}-{index}", job=job, job_uid=f"uid-{job}", role="worker",
        index=index, attempt=1, incarnation=1, placement=Placement(node=node), command=("true",),
    )  # fmt: skip


def key(index: int, job: str = "j") -> TaskKey:
    return spec(index, job=job).key


class Crossing(SimulatedCluster):
    """A cluster whose lists may be older than what its watch has told."""

    stale: Listing | None = None

    def list(self) -> Listing:
        stale, self.stale = self.stale, None
        return stale if stale is not None else super().list()


class World:
    def __init__(self) -> None:
        size = Capacity(cpu=CpuMillis(9000), memory=Bytes(2**30))
        self.clock = VirtualClock()
        self.cluster = Crossing(self.clock, {"a": size, "b": size}, run_for(5))
        self.cache = TaskCache(self.cluster, clock=self.clock)
        self.changes: list[tuple[str, str]] = []
        self.cache.on_change(self.note)

    def note(self, old: Task | None, new: Task | None) -> None:
        phase = new.phase if new is not None else "gone"
        self.changes.append(((new or old).spec.name, phase))

    def start(self, *specs: TaskSpec) -> None:
        for each in specs:
            start_group(self.cluster, (each,))

    def of_job(self, job: str = "j") -> dict[int, str]:
        return {task.spec.index: task.phase for task in self.cache.of_job(f"uid-{job}")}


@pytest.fixture
def world() -> World:
    world = World()
    world.start(spec(0), spec(1, "b"), spec(0, job="k"))
    world.cache.sync()
    world.changes.clear()
    return world


def test_it_lists_then_follows_changes(world: World):
    assert world.cache.synced and world.cache.complete
    assert world.of_job() == {0: "Running", 1: "Running"}
    world.start(spec(2))
    assert world.cache.ready.is_set()
    assert world.cache.sync()
    assert world.of_job()[2] == "Running"
    world.clock.advance(5)
    world.cache.sync()
    assert world.of_job() == dict.fromkeys(range(3), "Ended")
    assert len(world.cache.all()) == 4
    assert not world.cache.sync()


def test_nothing_is_known_before_the_first_list():
    world = World()
    assert not (world.cache.synced or world.cache.complete or world.cache.knows("a"))


def test_acknowledged_tasks_are_gone_and_stay_away(world: World):
    world.clock.advance(5)
    world.cache.sync()
    old = world.cluster.list()
    world.cache.acknowledge(key(0))
    assert world.of_job() == {1: "Ended"}
    world.cluster.stale = old  # a list that was on its way
    world.clock.advance(10)
    world.cache.sync()
    assert world.of_job() == {1: "Ended"}
    world.clock.advance(10)
    world.cache.sync()
    assert world.cache._forgotten == {}


def test_acknowledging_what_runs_changes_nothing(world: World):
    world.cache.acknowledge(key(0))
    assert world.of_job() == {0: "Running", 1: "Running"}


def test_a_task_never_goes_back_to_an_earlier_phase(world: World):
    old = world.cluster.list()
    world.cluster.stop(key(0), grace_seconds=9, reason="Cancelled")
    world.cache.sync()
    assert world.of_job()[0] == "Ended"
    world.cluster.stale = old
    world.clock.advance(10)
    world.cache.sync()
    assert world.of_job()[0] == "Ended"


def test_tasks_of_a_silent_node_stay_as_they_were_seen(world: World):
    lists: list[bool] = []
    world.cache.on_list(lambda: lists.append(world.cache.complete))
    world.cluster.silence("b")
    assert world.cache.sync()
    assert (world.cache.complete, world.cache.unreachable_nodes) == (False, {"b"})
    assert world.cache.knows("a") and not world.cache.knows("b")
    task_of_b = next(task for task in world.cache.of_job("uid-j") if task.spec.index == 1)
    assert world.changes == [(task_of_b.spec.name, "Running")], "its job is looked at again"
    world.clock.advance(11)
    world.cache.sync()
    assert world.of_job() == {0: "Ended", 1: "Running"}
    with pytest.raises(Unavailable):
        world.cache.acknowledge(key(1))
    world.cluster.silence("b", False)
    world.cache.sync()
    assert world.of_job() == {0: "Ended", 1: "Ended"}
    assert lists == [False, False, True]


def test_absence_counts_where_the_node_answered(world: World):
    everything = world.cluster.list()
    world.cluster.stale = msgspec.structs.replace(
        everything, tasks=everything.tasks[2:], unreachable_nodes=("b",)
    )
    world.clock.advance(1)
    world.cache.close()
    world.cache.sync()
    assert world.of_job() == {1: "Running"}
    assert world.of_job("k") == {}
    assert world.changes == [("j-0", "gone"), ("k-0", "gone"), ("j-1", "Running")]


def test_it_lists_again_now_and_then(world: World):
    assert world.cache.sync_after() == 10
    world.cluster._nodes["a"].tasks.clear()
    world.cache.sync()
    assert world.of_job()[0] == "Running"
    world.clock.advance(10)
    world.cache.sync()
    assert 0 not in world.of_job()


class Fragile:
    """A callback that raises until it is mended."""

    def __init__(self) -> None:
        self.broken = True
        self.seen: list[str] = []

    def __call__(self, old: Task | NodeState | None, new: Task | NodeState | None) -> None:
        if self.broken:
            raise KeyError("bug")
        thing = new or old
        self.seen.append(thing.spec.name if isinstance(thing, Task) else thing.name)


def test_a_callback_that_raises_gets_its_changes_of_tasks_again(world: World):
    fragile = Fragile()
    world.cache.on_change(fragile)
    after: list[str] = []
    world.cache.on_change(lambda old, new: after.append((new or old).spec.name))
    world.start(spec(2), spec(3))
    world.cache.sync()
    assert set(after) == {"j-2", "j-3"} and {"j-2", "j-3"} <= {name for name, _ in world.changes}
    assert 0 < world.cache.sync_after() <= 1.0
    fragile.broken = False
    world.cache.sync()
    assert sorted(fragile.seen) == ["j-2", "j-3"]


def test_a_callback_that_raises_gets_its_changes_of_nodes_again(world: World):
    states, fragile = NodeStates(world.cluster, world.cache, clock=world.clock), Fragile()
    states.on_change(fragile)
    after: list[str] = []
    states.on_change(lambda old, new: after.append((new or old).name))
    assert states.sync() and sorted(after) == ["a", "b"]
    assert 0 < states.sync_after() <= 1.0
    fragile.broken = False
    states.sync()
    assert sorted(fragile.seen) == ["a", "b"] and sorted(after) == ["a", "b"]
