"""A storm in virtual time: the production control plane on a simulated cluster, with every write
recorded and looked at. Thousands of events in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.cluster.simulated import Script, SimulatedCluster
from shoal.objects.job import Job
from shoal.objects.kinds import JOB, NODE
from shoal.objects.node import Capacity
from shoal.objects.task import TaskKey, TaskSpec
from shoal.store.base import SYSTEM
from shoal.store.memory import MemoryStore
from shoal.testing.plane import Plane
from tests.scenarios.storm.progress import Progress, Slot, slots_of
from tests.scenarios.storm.trace import End, JobTrace, Version

__all__ = ["Killed", "VirtualStorm"]

_ENDED = ("Succeeded", "Failed", "Cancelled")


class Killed(BaseException):
    """The server is no more."""


class VirtualStorm(Plane):
    """`wrong` collects what must never be: a name started twice, a node that is promised more than it
    has, a node that refuses. `die_after` is how many more status writes the server lives for."""

    def __init__(
        self, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script], seed: int = 0
    ) -> None:
        self.capacities = nodes
        self.versions: dict[str, list[Version]] = {}
        self.wrong: list[str] = []
        self.die_after: int | None = None
        self.deaths = 0
        super().__init__(nodes, behave, seed)

    def make_store(self) -> MemoryStore:
        return _Store(self)

    def make_cluster(
        self, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script]
    ) -> SimulatedCluster:
        return _Cluster(self, nodes, behave)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, starting a new server whenever one is killed."""
        end = self.clock.monotonic() + seconds
        while True:
            try:
                return self.advance(max(0.0, end - self.clock.monotonic()))
            except Killed:
                self.deaths += 1
                self.restart()

    def settle_or_restart(self) -> None:
        """Let everything react to what is there now."""
        self.pass_time(0.0)

    def until_over(self, most_seconds: float = 3000.0) -> None:
        """Let time pass until every job has ended and nothing of any is left.

        Raises:
            TimeoutError: that takes too long.
        """
        for _ in range(int(most_seconds)):
            self.pass_time(1.0)
            if all(self._is_over(job) for job in self.jobs()) and not self.cluster.every_task():
                return
        left = [job for job in self.jobs() if not self._is_over(job)]
        raise TimeoutError(f"{self.runner.failures()}, {left}, {self.cluster.every_task()}")

    def jobs(self) -> list[Job]:
        """All that are there."""
        return [record.object for record in self.store.list(JOB, actor=SYSTEM).records]

    def traces(self) -> list[JobTrace]:
        """Of every job that ever was."""
        ends: dict[str, dict[str, End]] = {}
        for task in (*self.attempts, *self.cluster.list().tasks):
            spec = task.spec
            ends.setdefault(spec.job_uid, {})[spec.name] = End(
                job_uid=spec.job_uid,
                node=spec.placement.node,
                role=spec.role,
                index=spec.index,
                incarnation=spec.incarnation,
                admitted=task.admitted,
                ended=task.ended,
                outcome=task.outcome,
            )
        return [
            JobTrace(tuple(versions), tuple(ends.get(uid, {}).values()))
            for uid, versions in self.versions.items()
        ]

    def wrote(self, job: Job) -> None:
        """A job has been written, by whomever."""
        nodes = (record.object for record in self.store.list(NODE, actor=SYSTEM).records)
        lost = tuple(node.metadata.name for node in nodes if node.spec.lost)
        self.versions.setdefault(job.metadata.uid, []).append(Version(self.clock.now(), job, lost))
        if job.status.refusal is not None:
            self.wrong.append(f"{job.metadata.name} was refused: {job.status.refusal}")

    def _is_over(self, job: Job) -> bool:
        return job.status.phase in _ENDED and not job.status.allocation.slots

    def check_promises(self) -> None:
        """No node is promised more than it has, whoever holds it: a slot, a member, or a task."""
        held: dict[tuple[str, str, Slot], int] = {}
        for job in self.jobs():
            cpu = {role.name: int(role.resources.cpu) for role in job.spec.roles}
            nodes = [*slots_of(job).items()]
            if job.status.phase not in _ENDED:
                nodes += Progress.of(job).nodes.items()
            for slot, node in nodes:
                held[node, job.metadata.uid, slot] = cpu[slot[0]]
        live: dict[tuple[str, str, Slot], int] = {}
        for task in self.cluster.every_task():
            spec = task.spec
            if task.phase != "Ended":
                key = (spec.placement.node, spec.job_uid, (spec.role, spec.index))
                live[key] = live.get(key, 0) + int(spec.cpu)
        used = dict.fromkeys(self.capacities, 0)
        for key in {*held, *live}:
            used[key[0]] += max(held.get(key, 0), live.get(key, 0))
        self.wrong += [
            f"{node} is promised {millis} at {self.clock.monotonic():.3f}"
            for node, millis in used.items()
            if millis > int(self.capacities[node].cpu)
        ]


class _Store(MemoryStore):
    def __init__(self, storm: VirtualStorm) -> None:
        super().__init__(clock=storm.clock)
        self._storm = storm

    def create(self, obj: Any, **arguments: Any) -> Any:
        made = super().create(obj, **arguments)
        if isinstance(made, Job):
            self._storm.wrote(made)
        return made

    def update(self, obj: Any, **arguments: Any) -> Any:
        made = super().update(obj, **arguments)
        if isinstance(made, Job):
            self._storm.wrote(made)
        return made

    def delete(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        record = super().delete(kind, *arguments, **more)
        if kind is JOB:
            self._storm.wrote(record.object)
        return record

    def patch_status(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        record = super().patch_status(kind, *arguments, **more)
        storm = self._storm
        if kind is JOB:
            storm.wrote(record.object)
            storm.check_promises()
        if storm.die_after is not None:
            storm.die_after -= 1
            if storm.die_after <= 0:
                storm.die_after = None
                raise Killed
        return record


class _Cluster(SimulatedCluster):
    def __init__(
        self, storm: VirtualStorm, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script]
    ) -> None:
        super().__init__(storm.clock, nodes, behave)
        self._storm = storm
        self._ever: set[TaskKey] = set()

    def ensure(self, group: tuple[TaskSpec, ...]) -> None:
        there = {task.spec.key for task in self.every_task()}
        super().ensure(group)
        for spec in group:
            if spec.key not in there and spec.key in self._ever:
                self._storm.wrong.append(f"{spec.name} was started twice")
            self._ever.add(spec.key)

    def every_task(self) -> list[Any]:
        """Those of silent nodes too."""
        return [running.task for node in self._nodes.values() for running in node.tasks.values()]
