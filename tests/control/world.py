"""The whole control plane over a store in memory and a cluster in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shoal.cluster.base import Task
from shoal.cluster.simulated import Script, SimulatedCluster, run_for
from shoal.control.cache import ObjectCache
from shoal.control.context import ControllerContext
from shoal.control.controllers import build
from shoal.control.lease import AlwaysLeader, Guard
from shoal.control.runner import Runner
from shoal.control.scheduling import SchedulingController
from shoal.objects.job import ArraySpec, Job, JobSpec, Resources, Role
from shoal.objects.kinds import JOB, NODE, QUEUE
from shoal.objects.meta import Metadata, Object, Stamp
from shoal.objects.node import Capacity, Node
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue, QueueSpec
from shoal.objects.ranges import IndexSet
from shoal.objects.task import Endpoint, TaskBootstrap, TaskSpec
from shoal.schedule.cycle.rows import Rules
from shoal.schedule.plan import policy_named
from shoal.store.base import SYSTEM
from shoal.store.memory import MemoryStore
from shoal.testing.clock import VirtualClock


def capacity(cpu: float = 4, gpus: int = 0) -> Capacity:
    devices = tuple(f"g{number}" for number in range(gpus))
    return Capacity(cpu=CpuMillis(int(cpu * 1000)), memory=Bytes(2**34), gpus=devices)


def role(replicas: int = 1, cpu: float = 1, **fields: Any) -> Role:
    resources = Resources(cpu=CpuMillis(int(cpu * 1000)), gpu=fields.pop("gpu", 0))
    return Role(replicas=replicas, resources=resources, command=("true",), **fields)


class Cluster(SimulatedCluster):
    """A simulated cluster whose nodes may change their size."""

    def shrink(self, name: str, to: Capacity) -> None:
        self._nodes[name].capacity = to

    def report(self) -> None:
        """The controllers learn of nodes that have changed."""
        self._watches.nodes_changed()

    def remove(self, name: str) -> None:
        """The node is gone, and its tasks with it."""
        del self._nodes[name]
        self._watches.nodes_changed()


class Diary:
    """An `EventRecorder` that keeps lists."""

    def __init__(self) -> None:
        self.decisions: list[tuple[str, str, str]] = []
        self.events: list[tuple[str, str]] = []
        self.said: dict[tuple[str, str], list[str]] = {}
        """The messages of warnings."""

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
        self.events.append((obj.metadata.name, reason))
        if warning:
            self.said.setdefault((obj.metadata.name, reason), []).append(message)

    def attempt(self, job: Object, task: Task) -> None:
        self.events.append((job.metadata.name, f"ended {task.spec.name}"))

    def decision(self, obj: Object, key: str, code: str, message: str, evidence: dict[str, Any]) -> None:
        self.decisions.append((obj.metadata.name, code, message))


def render(
    job: Job, attempt: int, specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
) -> Mapping[str, TaskBootstrap]:
    return {spec.name: TaskBootstrap() for spec in specs}


EDITION = Rules().edition
"""Of the scheduling core."""


class World:
    """Everything wired together; `run` lets all that is due now happen."""

    def __init__(
        self,
        nodes: dict[str, Capacity] | None = None,
        behave: Callable[[TaskSpec], Script] | None = None,
        store: MemoryStore | None = None,
        guard: Guard | None = None,
        clock: Any = None,
        policy: str = "shoal",
    ) -> None:
        self.policy = policy
        self.levels: tuple[str, ...] = ()
        """Of the topology."""
        self.clock = clock or VirtualClock()
        self.guard = guard or AlwaysLeader()
        self.cluster = Cluster(
            self.clock, nodes or {"a": capacity(), "b": capacity()}, behave or run_for(None)
        )
        self.store = store or MemoryStore(clock=self.clock)
        self.diary = Diary()
        self.store.create(Queue(metadata=Metadata(name="default", namespace="")), actor=SYSTEM)
        self.boot()

    def boot(self) -> None:
        """A new server: caches, controllers and runner anew over the same store and cluster."""
        clock, guard = self.clock, self.guard
        context = ControllerContext(
            store=self.store,
            cluster=self.cluster,
            clock=clock,
            guard=guard,
            rendezvous=render,
            recorder=self.diary,
            policy=lambda: policy_named(self.policy, edition=EDITION),
            levels=lambda: self.levels,
        )
        self.context = context
        self.jobs: ObjectCache[Job] = context.cache(JOB)
        self.queues: ObjectCache[Queue] = context.cache(QUEUE)
        self.nodes: ObjectCache[Node] = context.cache(NODE)
        self.tasks, self.states = context.tasks, context.node_states
        controllers = build(context)
        self.scheduling = next(c for c, _ in controllers if isinstance(c, SchedulingController))
        self.runner = Runner(controllers, clock=clock, guard=guard)

    def run(self, seconds: float = 1.0, step: float = 0.25) -> None:
        """Let virtual time pass, with everything that happens in it."""
        end = self.clock.monotonic() + seconds
        while True:
            self.runner.run_once()
            left = end - self.clock.monotonic()
            if left <= 1e-9:
                return
            due = self.runner.next_due()
            self.clock.advance(min(left, step if due is None else min(step, max(due, 1e-4))))

    def submit(self, name: str, *roles: Role, **spec: Any) -> Job:
        made = JobSpec(roles=roles or (role(),), **spec)
        return self.store.create(Job(metadata=Metadata(name=name), spec=made), actor=SYSTEM)

    def array(self, name: str, indices: str, parallelism: int | None = None, **spec: Any) -> Job:
        return self.submit(name, array=ArraySpec(indices=indices, parallelism=parallelism), **spec)

    def queue(self, name: str, **spec: Any) -> Queue:
        made = Queue(metadata=Metadata(name=name, namespace=""), spec=QueueSpec(**spec))
        return self.store.create(made, actor=SYSTEM)

    def job(self, name: str) -> Job:
        return self.store.get(Job, "default", name, actor=SYSTEM)

    def node(self, name: str) -> Node:
        return self.store.get(Node, "", name, actor=SYSTEM)

    def edit(self, name: str, **spec: Any) -> Job:
        job = self.job(name)
        return self.store.update(
            msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **spec)), actor=SYSTEM
        )

    def edit_node(self, name: str, **spec: Any) -> Node:
        node = self.node(name)
        return self.store.update(
            msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, **spec)), actor=SYSTEM
        )

    def slots(self, name: str) -> dict[int, str]:
        allocation = self.job(name).status.allocation
        return {index: s.node for s in allocation.slots for index in IndexSet.parse(s.indices)}

    def running(self, name: str) -> dict[int, str]:
        uid = self.job(name).metadata.uid
        return {
            task.spec.index: task.spec.placement.node
            for task in self.cluster.list().tasks
            if task.spec.job_uid == uid and task.phase == "Running"
        }

    def why(self, name: str) -> str:
        return self.job(name).status.scheduling.code
