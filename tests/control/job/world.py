"""A world for one job: the pure decision, a simulated cluster, and a store of one object.

The scheduler is the test's hand: `allocate` writes slots. Everything else happens as in production:
decide, apply in order, look again when something changed or when the decision asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shoal.cluster.base import Task
from shoal.cluster.simulated import Script, SimulatedCluster
from shoal.control.job import actions
from shoal.control.job.observe import FINALIZER, Observed
from shoal.control.job.reconcile import reconcile_job
from shoal.objects import codec
from shoal.objects.job import Allocation, Job, JobSpec, JobStatus, Role, Slots
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import TaskBootstrap, TaskSpec
from shoal.testing.clock import VirtualClock


class World:
    def __init__(self, spec: JobSpec, behave: Callable[[TaskSpec], Script], nodes: int = 2) -> None:
        self.clock = VirtualClock(1_000_000.0)
        room = Capacity(cpu=CpuMillis(8000), memory=Bytes(8 << 30), gpus=("0", "1", "2", "3"))
        self.cluster = SimulatedCluster(self.clock, {f"n{i}": room for i in range(nodes)}, behave)
        metadata = Metadata(name="j", uid="uid-1", generation=1, finalizers=(FINALIZER,))
        self.job = Job(metadata=metadata, spec=spec)
        self.notes: list[actions.Note] = []
        self.acknowledged: list[Task] = []
        self.started: list[str] = []
        self.lost: frozenset[str] = frozenset()
        self.gone = False
        self.again: float | None = None

    def allocate(self, *slots: Slots, reason: str = "Started") -> None:
        """Play the scheduler: these slots and no others."""
        old = self.job.status.allocation
        new = Allocation(id=old.id + 1, slots=slots, reason=reason)
        self.status(allocation=new)

    def status(self, **fields: Any) -> None:
        self.job = msgspec.structs.replace(
            self.job, status=msgspec.structs.replace(self.job.status, **fields)
        )

    def edit(self, **fields: Any) -> None:
        """Play a person: edit the spec."""
        self.job = msgspec.structs.replace(
            self.job, spec=msgspec.structs.replace(self.job.spec, **fields)
        )

    def delete(self) -> None:
        metadata = msgspec.structs.replace(self.job.metadata, deleted=self.clock.now())
        self.job = msgspec.structs.replace(self.job, metadata=metadata)

    def settle(self, cut_after: int | None = None) -> None:
        """Passes until one asks for nothing; `cut_after` dies after so many actions of each pass."""
        for _ in range(200):
            done = self.turn(cut_after)
            if not done:
                return
        raise AssertionError(f"not settled: {self.job.status}")

    def turn(self, cut_after: int | None = None) -> bool:
        if self.gone:
            self.again = None
            return False
        listing = self.cluster.list()
        tasks = tuple(t for t in listing.tasks if t.spec.placement.node not in self.lost)
        observed = Observed(
            self.job, tasks, unreachable=frozenset(listing.unreachable_nodes), lost=self.lost
        )
        decision = reconcile_job(observed, self.clock.now())
        assert decision == reconcile_job(observed, self.clock.now())
        self.again = decision.again_seconds
        before = (self.job, self.cluster.list())
        for action in decision.actions[:cut_after]:
            self._apply(action)
        return (self.job, self.cluster.list()) != before and not self.gone

    def advance(self, seconds: float) -> None:
        """Let time pass, looking again whenever something ends or a pass asked for it."""
        end = self.clock.now() + seconds
        while True:
            self.settle()
            waits = [w for w in (self.cluster.next_event(), self.again) if w is not None]
            step = min([*waits, end - self.clock.now()])
            if self.clock.now() + step >= end:
                self.clock.advance(end - self.clock.now())
                self.settle()
                return
            self.clock.advance(step + 1e-6)

    def tasks(self) -> dict[str, str]:
        return {t.spec.name.removeprefix("j-uid-1-"): t.phase for t in self.cluster.list().tasks}

    def _apply(self, action: actions.Action) -> None:
        match action:
            case actions.PatchStatus(fields):
                document = codec.builtins(self.job.status) | fields
                document = {name: value for name, value in document.items() if value is not None}
                status = codec.decode(msgspec.json.encode(document), JobStatus)
                self.job = msgspec.structs.replace(self.job, status=status)
            case actions.Note():
                self.notes.append(action)
            case actions.Acknowledge(task):
                self.acknowledged.append(task)
                self.cluster.acknowledge(task.spec.key)
            case actions.Stop(task, grace, reason):
                self.cluster.stop(task, grace_seconds=grace, reason=reason)
            case actions.Ensure(group, together):
                for each in [group] if together else [(spec,) for spec in group]:
                    self.cluster.ensure(each)
            case actions.Bootstrap(tasks):
                fresh = [task.spec.name for task in tasks if not task.bootstrapped]
                again = set(fresh) & set(self.started)
                assert not again, f"started twice: {again}"
                self.started += fresh
                self.cluster.bootstrap({task.spec.key: TaskBootstrap() for task in tasks})
            case actions.RemoveFinalizer() | actions.DeleteJob():
                self.gone = True
            case actions.CleanUp(outputs):
                self.cluster.cleanup_job("default", "uid-1", outputs=outputs)
            case actions.AddFinalizer():
                raise AssertionError("it has the finalizer")


def gang(replicas: int = 3, **fields: Any) -> JobSpec:
    """A job of one role whose tasks restart together."""
    fields.setdefault("runtime", "torchrun")
    return JobSpec(roles=(Role(replicas=replicas, command=("x",)),), **fields)


def slots(indices: str, node: str = "n0", role: str = "worker") -> Slots:
    return Slots(role=role, indices=indices, node=node)
