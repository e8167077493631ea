"""The whole control plane in virtual time: store, controllers, scheduler, and a simulated cluster.

    plane = Plane({"n0": capacity(4)}, behave=run_for(5))
    plane.submit(job)
    plane.advance(10)
    assert plane.job("digits").status.phase == "Succeeded"

One thread, no real waiting, the same code as production: what happens here is what the server would
do with the same events. Recorded fault traces are replayed on it to say what should have happened; for
that a subclass may put its own store and cluster in (`make_store`, `make_cluster`), and give out slots
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shoal.cluster.base import Task
from shoal.cluster.simulated import Script, SimulatedCluster
from shoal.control.context import ControllerContext
from shoal.control.controllers import build
from shoal.control.lease import AlwaysLeader
from shoal.control.runner import Runner
from shoal.control.scheduling import SchedulingController
from shoal.objects.errors import Conflict
from shoal.objects.job import Job
from shoal.objects.meta import Metadata, Object, Stamp
from shoal.objects.node import Capacity, Node
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue
from shoal.objects.task import Endpoint, TaskBootstrap, TaskSpec
from shoal.store.base import SYSTEM
from shoal.store.memory import MemoryStore
from shoal.testing.clock import VirtualClock

__all__ = ["Plane", "capacity"]

_LONGEST_STEP_SECONDS = 1.0


def capacity(cpu: float, memory_gib: float = 64, gpus: int = 0) -> Capacity:
    """A node's capacity in cores, GiB and devices `0`, `1`, ..."""
    return Capacity(
        cpu=CpuMillis(round(cpu * 1000)),
        memory=Bytes(round(memory_gib * 2**30)),
        gpus=tuple(str(number) for number in range(gpus)),
    )


class Plane:
    """See the module's docstring. Not thread-safe."""

    def __init__(
        self,
        nodes: Mapping[str, Capacity],
        behave: Callable[[TaskSpec], Script],
        seed: int = 0,
        *,
        schedules: bool = True,
    ) -> None:
        """`schedules=False`: the caller writes allocations."""
        self.clock = VirtualClock()
        self.store = self.make_store()
        self.cluster = self.make_cluster(dict(nodes), behave)
        self.notes: list[tuple[str, str, str]] = []
        self.named: set[str] = set()
        """Other jobs that the events in `notes` name."""
        self.attempts: list[Task] = []
        self.store.create(Queue(metadata=Metadata(name="default", namespace="")), actor=SYSTEM)
        self._seed, self._schedules = seed, schedules
        self.runner = self._boot()

    def restart(self) -> None:
        """A new server in place of one that was killed: nothing but store and cluster is left of it."""
        self.runner.stop(0.0)
        self.runner = self._boot()

    def make_store(self) -> MemoryStore:
        """The store of this plane; called once, when there is a clock."""
        return MemoryStore(clock=self.clock)

    def make_cluster(
        self, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script]
    ) -> SimulatedCluster:
        """The cluster of this plane; called once, when there is a clock."""
        return SimulatedCluster(self.clock, nodes, behave)

    def make_context(self, **parts: Any) -> ControllerContext:
        """What the controllers of a new server are made of; `parts` are further ones."""
        return ControllerContext(
            store=self.store,
            cluster=self.cluster,
            clock=self.clock,
            rendezvous=_render_nothing,
            recorder=_Recorder(self),
            **parts,
        )

    def submit(self, job: Job) -> Job:
        """Create the Job; nothing reacts until time passes or `settle` is called."""
        return self.store.create(job, actor=SYSTEM)

    def job(self, name: str, namespace: str = "default") -> Job:
        """The Job as stored."""
        return self.store.get(Job, namespace, name, actor=SYSTEM)

    def edit(self, name: str, **spec: Any) -> Job:
        """Change fields of a Job's spec, as a person would."""
        while True:
            job = self.job(name)
            spec_new = msgspec.structs.replace(job.spec, **spec)
            try:
                return self.store.update(msgspec.structs.replace(job, spec=spec_new), actor=SYSTEM)
            except Conflict:
                continue

    def edit_node(self, name: str, **spec: Any) -> Node:
        """Change fields of a Node's spec, as a person would."""
        node = self.store.get(Node, "", name, actor=SYSTEM)
        spec_new = msgspec.structs.replace(node.spec, **spec)
        return self.store.update(msgspec.structs.replace(node, spec=spec_new), actor=SYSTEM)

    def settle(self) -> None:
        """Let everything react to what is there now; no time passes."""
        self.runner.run_once()

    def advance(self, seconds: float) -> None:
        """Let time pass; everything reacts at the moment it would."""
        end = self.clock.monotonic() + seconds
        self.settle()
        while (left := end - self.clock.monotonic()) > 1e-9:
            due = [self.cluster.next_event(), self.runner.next_due()]
            waits = [max(wait, 1e-4) for wait in due if wait is not None]
            self.clock.advance(min([*waits, left, _LONGEST_STEP_SECONDS]))
            self.settle()

    def until(self, condition: Callable[[], bool], most_seconds: float = 3600.0) -> None:
        """Let time pass until the condition holds.

        Raises:
            TimeoutError: it does not within that much virtual time.
        """
        end = self.clock.monotonic() + most_seconds
        self.settle()
        while not condition():
            if self.clock.monotonic() > end:
                raise TimeoutError(f"not within {most_seconds} s of virtual time")
            self.advance(0.05)

    def tasks(self, job: str) -> dict[tuple[str, int], Task]:
        """The job's tasks that have not ended, by role and index."""
        return {
            (task.spec.role, task.spec.index): task
            for task in self.cluster.list().tasks
            if task.spec.job == job and task.phase != "Ended"
        }

    def _boot(self) -> Runner:
        guard = AlwaysLeader()
        self.context = context = self.make_context(guard=guard)
        without = () if self._schedules else (SchedulingController.name,)
        controllers = [(each, 1) for each, _ in build(context, without=without)]
        return Runner(controllers, clock=self.clock, guard=guard, seed=self._seed)


class _Recorder:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def event(
        self,
        obj: Object,
        reason: str,
        message: str,
        *,
        warning: bool,
        at: Stamp,
        jobs: tuple[str, ...] = (),
    ) -> None:
        self._plane.notes.append((obj.metadata.name, reason, message))
        self._plane.named.update(jobs)

    def attempt(self, job: Object, task: Task) -> None:
        self._plane.attempts.append(task)

    def decision(self, obj: Object, key: str, code: str, message: str, evidence: dict[str, Any]) -> None:
        self._plane.notes.append((obj.metadata.name, code, message))


def _render_nothing(
    job: Job, attempt: int, specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
) -> dict[str, TaskBootstrap]:
    return {spec.name: TaskBootstrap() for spec in specs}
