"""A job's recorded trace in virtual time: the production controller on a simulated cluster, told the
same by people, scheduler and nodes in the same order. What becomes of the job must be the same.

Nothing of the recording's counters goes in. Ends are forced as their nodes recorded them; slots are
given out as the scheduler gave them; a person's edit comes when the job has come exactly as far as it
had when that person made it. If it never comes that far, the two runs differ, and that is reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from shoal.cluster import base
from shoal.cluster.base import Outcome
from shoal.cluster.simulated import Script, SimulatedCluster
from shoal.objects import codec
from shoal.objects.errors import Unavailable
from shoal.objects.job import Job, Refusal
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity
from shoal.objects.task import TaskKey, TaskSpec
from shoal.store.base import SYSTEM, Record
from shoal.store.memory import MemoryStore
from shoal.testing.plane import Plane, capacity
from tests.scenarios.storm.model import in_order
from tests.scenarios.storm.moments import Allocated, Edited, Wrote, moments_of
from tests.scenarios.storm.progress import Progress, Slot, final, is_gang
from tests.scenarios.storm.trace import End, JobTrace

__all__ = ["differences"]

_PATIENCE_SECONDS = 900.0
"""Virtual time without a step after which the two runs have gone apart."""
_STOPPED = Outcome(reason="Signalled", exit_code=143, signal=15)


@dataclass(frozen=True)
class Ended:
    """A task is to end as it did, in one write with the ends of these others."""

    before: Progress
    end: End
    together: tuple[End, ...]


@dataclass(frozen=True)
class Joined:
    """These are to be given to their nodes before anything else happens."""

    slots: frozenset[tuple[Slot, int]]


@dataclass(frozen=True)
class RefusedStart:
    """The next start is to be refused."""

    refusal: Refusal


Step = Edited | Allocated | Ended | Joined | RefusedStart


def differences(trace: JobTrace) -> list[str]:
    """In what a simulated run of the trace comes out otherwise than the real one did."""
    replay = _Replay(trace)
    stuck = replay.run()
    real, simulated = final(trace.last), final(replay.job(trace.name))
    found = [
        f"{name}: {real[name]} in the real run, {simulated[name]} in the simulated one"
        for name in real
        if real[name] != simulated[name]
    ]
    return [*stuck, *found]


class _Replay(Plane):
    def __init__(self, trace: JobTrace) -> None:
        self.trace = trace
        self.name = trace.name
        self.steps = deque(_steps_of(trace))
        self._all = len(self.steps)
        self.known = {(end.slot, end.incarnation): end for end in trace.ends}
        nodes = {
            slots.node for version in trace.versions for slots in version.job.status.allocation.slots
        }
        room = {node: capacity(1000, memory_gib=1 << 20) for node in nodes or {"none"}}
        super().__init__(room, lambda spec: Script(stops_after_seconds=None), schedules=False)

    def make_store(self) -> MemoryStore:
        return _Store(self.clock, self.go_on)

    def make_cluster(
        self, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script]
    ) -> SimulatedCluster:
        return _Cluster(self, nodes, behave)

    def run(self) -> list[str]:
        """To the end of the trace and of the job; what it waited for in vain."""
        first = self.trace.versions[0].job
        metadata = Metadata(name=self.name, uid="")
        self.submit(Job(metadata=metadata, spec=first.spec))
        since = self.clock.monotonic()
        while self.clock.monotonic() - since < _PATIENCE_SECONDS:
            left = len(self.steps)
            self.go_on()
            self.settle()
            if len(self.steps) < left:
                since = self.clock.monotonic()
            elif not self.steps and self._over():
                return []
            elif not self._let_go():
                self.advance(0.1)
        return [f"after {self._all - len(self.steps)} of {self._all} steps: {self._why()}"]

    def go_on(self) -> None:
        """Take every step that is due."""
        while self.steps and self._due(self.steps[0]):
            step = self.steps.popleft()
            match step:
                case Ended(end=end):
                    assert end.outcome is not None
                    self.clock.advance(0.001)  # ends that are counted together are by their stamps
                    self.cluster.end(self._key(end), end.outcome)
                case Edited(_, spec):
                    job = msgspec.structs.replace(self.job(self.name), spec=spec)
                    self.store.update(job, actor=SYSTEM)
                case Allocated(allocation=allocation):
                    self._allocate(codec.builtins(allocation))
                case _:
                    continue

    def allows(self, spec: TaskSpec) -> bool:
        """Whether a task of this name was ever started in the real run."""
        return ((spec.role, spec.index), spec.incarnation) in self.known

    def refusal(self) -> RefusedStart | None:
        """What the next start is to meet."""
        if self.steps and isinstance(self.steps[0], RefusedStart):
            refused = self.steps.popleft()
            assert isinstance(refused, RefusedStart)
            return refused
        return None

    def _due(self, step: Step) -> bool:
        if isinstance(step, RefusedStart):
            return False
        now = Progress.of(self.job(self.name))
        if isinstance(step, Joined):
            return all(_has_joined(now, *each) for each in step.slots)
        return not self._lacks(step, now)

    def _lacks(self, step: Edited | Allocated | Ended, now: Progress) -> list[str]:
        found = now.differs(step.before, self._members_that_count(step))
        there = self._tasks()
        if isinstance(step, Ended):
            phase = there.get((step.end.slot, step.end.incarnation))
            if phase not in ("Running", "Terminating"):
                found.append(f"it is {phase}")
            # what one write counted is counted by one write only if all of it can end now
            missing = [e for e in step.together if (e.slot, e.incarnation) not in there]
            found += [f"{end.slot}, which ends with it, does not run" for end in missing]
        waited_for = {(slot, now.incarnation(slot)) for slot in now.members} & self.known.keys()
        return found + [f"{each} does not run" for each in waited_for - there.keys()]

    def _members_that_count(self, step: Edited | Allocated | Ended) -> frozenset[Slot] | None:
        """Where tasks start for themselves, one whose node is silent joins later than the rest; here no
        node ever is."""
        if isinstance(step, Edited) or is_gang(self.trace.last):
            return None
        return step.taken if isinstance(step, Allocated) else frozenset()

    def _why(self) -> str:
        if not self.steps:
            return f"the job does not end: {self.job(self.name).status}"
        step, now = self.steps[0], Progress.of(self.job(self.name))
        if isinstance(step, Edited | Allocated | Ended):
            return (
                f"{type(step).__name__} at {step.before}; but it came to {now}: {self._lacks(step, now)}"
            )
        return f"{step} never comes about; it came to {now}"

    def _let_go(self) -> bool:
        """End the tasks that were asked to stop and that nobody waits for; whether there were any."""
        awaited = {
            (step.end.slot, step.end.incarnation) for step in self.steps if isinstance(step, Ended)
        }
        found = False
        for task in self.cluster.list().tasks:
            slot = (task.spec.role, task.spec.index)
            if task.phase == "Terminating" and (slot, task.spec.incarnation) not in awaited:
                self.cluster.end(
                    task.spec.key, msgspec.structs.replace(_STOPPED, stop_reason=task.stop_reason)
                )
                found = True
        return found

    def _over(self) -> bool:
        ended = self.job(self.name).status.phase in ("Succeeded", "Failed", "Cancelled")
        return ended and not self.cluster.list().tasks

    def _tasks(self) -> dict[tuple[Slot, int], str]:
        """Every task's phase."""
        return {
            ((task.spec.role, task.spec.index), task.spec.incarnation): task.phase
            for task in self.cluster.list().tasks
        }

    def _key(self, end: End) -> TaskKey:
        return next(
            task.spec.key
            for task in self.cluster.list().tasks
            if (task.spec.role, task.spec.index, task.spec.incarnation)
            == (end.role, end.index, end.incarnation)
        )

    def _allocate(self, allocation: Mapping[str, Any]) -> None:
        job = self.job(self.name)
        self.store.patch_status(
            JOB,
            job.metadata.namespace,
            job.metadata.name,
            actor=SYSTEM,
            writer="scheduler",
            uid=job.metadata.uid,
            counter=job.status.writers.get("scheduler", 0),
            fields={"allocation": allocation},
        )


class _Store(MemoryStore):
    """Calls `wrote` after each status write of the job controller, before that goes on."""

    def __init__(self, clock: Any, wrote: Callable[[], None]) -> None:
        super().__init__(clock=clock)
        self._wrote = wrote

    def patch_status(self, *args: Any, **fields: Any) -> Record:
        record = super().patch_status(*args, **fields)
        if fields["writer"] == "job":
            self._wrote()
        return record


class _Cluster(SimulatedCluster):
    """Starts what was started in the real run, and refuses where a node refused there."""

    def __init__(
        self, replay: _Replay, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script]
    ) -> None:
        super().__init__(replay.clock, nodes, behave)
        self._replay = replay

    def ensure(self, group: tuple[TaskSpec, ...]) -> None:
        refused = self._replay.refusal()
        if refused is not None:
            said = refused.refusal
            for spec in group:
                refusal = base.Refusal(node=said.node, reason=said.reason, message=said.message)
                self.refuse(spec, refusal)
            return
        started = tuple(spec for spec in group if self._replay.allows(spec))
        if started:
            super().ensure(started)
        if started != group:
            raise Unavailable("some of these were never started in the real run")


def _has_joined(now: Progress, slot: Slot, incarnation: int) -> bool:
    """True also once it has gone on from there."""
    if now.incarnation(slot) == incarnation:
        return slot in now.members or slot in now.outcomes
    return now.incarnation(slot) > incarnation


def _steps_of(trace: JobTrace) -> Iterator[Step]:
    for moment in in_order(trace.versions[0].job.spec, moments_of(trace)):
        if isinstance(moment, Edited | Allocated):
            yield moment
        if not isinstance(moment, Wrote):
            continue
        for end in moment.ended:
            yield Ended(moment.before, end, tuple(moment.ended))
        if moment.refusal is not None:
            yield RefusedStart(moment.refusal)
        elif moment.joined:
            yield Joined(moment.joined)
