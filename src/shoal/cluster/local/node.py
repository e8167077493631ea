"""What an agent knows and does, apart from sockets: the ledger, the ports, the tasks that run.

Each operation changes the ledger and names what follows once that is durable (`CommitBatch`): an
answer, a spawn, a signal.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec

from shoal import faults
from shoal.clock import Clock
from shoal.cluster.base import EndReason, NodeState, Outcome, Refused, StopReason
from shoal.cluster.local import admission, launch, nodes, taskfiles
from shoal.cluster.local.admission import Ports
from shoal.cluster.local.home import Home, NodeHome
from shoal.cluster.local.isolation import cleanup
from shoal.cluster.local.launch import TaskFolders
from shoal.cluster.local.ledger import Ledger, Progress, Record, StopRequest
from shoal.cluster.local.loop import CommitBatch, Loop
from shoal.cluster.local.nodes import NodeDecl
from shoal.cluster.local.protocol import Change, LaunchTask, change_of
from shoal.cluster.local.task_monitor import TaskMonitor
from shoal.objects.errors import Conflict, ShoalError, Unavailable
from shoal.objects.task import Endpoint, TaskKey, TaskSpec

HOST = "127.0.0.1"
RETRY_SECONDS = 1.0
PACE_SECONDS = 60.0
PACE_INCARNATIONS = 60
"""A replica is admitted so often within that time; a controller's own backoff is slower."""
MOST_PACED = 10_000
MOST_CHARACTERS = 2000
"""Of the sentences in one condition of the node; the newest stay."""
CLOCK_SLACK_SECONDS = 0.02
"""The time of an end may be a file's, which the kernel takes from a clock that ticks slowly."""


@dataclass(frozen=True)
class Isolations:
    """What this machine can isolate, as the agent found when it started."""

    states: dict[str, str]
    strict_refusal: str
    cgroup_parents: dict[str, str]


class Node:
    """See the module's docstring. Belongs to the loop's thread."""

    def __init__(
        self,
        home: Home,
        declaration: NodeDecl,
        clock: Clock,
        loop: Loop,
        isolations: Isolations,
    ) -> None:
        self.home = home
        self.declaration = declaration
        self.clock = clock
        self.loop = loop
        self.isolations = isolations
        self.paths: NodeHome = home.node(declaration.name).create()
        self.problems: dict[str, str] = {}
        self._admitted: dict[tuple[str, str, str, int], list[float]] = {}
        """When each replica was admitted of late."""
        self.on_state: Callable[[NodeState], None] = lambda _: None
        self.ledger = Ledger.open(self.paths.ledger, self.damaged)
        self.ports = Ports(declaration.name, self.ledger, str(self.paths.path))
        self.monitors: dict[TaskKey, TaskMonitor] = {}
        self.exec_pids: set[int] = set()
        """Commands that run beside tasks."""
        self.idle_since: dict[TaskKey, float] = {}
        self.ready: set[TaskKey] = set()
        """Running tasks with a readiness probe that succeeds."""
        self.on_started: Callable[[Record], None] = lambda _: None
        self.on_change: Callable[[tuple[Change, ...]], None] = lambda _: None
        self.turn = CommitBatch(self.ledger, self._tell, self._undone)
        self._emptying = False
        loop.end_turn = self.turn.end

    # What clients ask.

    def state(self) -> NodeState:
        """The node itself."""
        return NodeState(
            name=self.declaration.name,
            ready=True,
            capacity=self.declaration.capacity,
            address=HOST,
            isolations=self.isolations.states,
            labels=self.declaration.labels,
            problems=self.problems,
        )

    def problem(self, kind: str, message: str) -> None:
        """Something on this node needs a person: a line in the log and a condition of the node."""
        before = self.problems.get(kind, "")
        if message not in before:
            report(message)
            joined = f"{before}; {message}" if before else message
            self.problems = {**self.problems, kind: joined[-MOST_CHARACTERS:]}
            self.on_state(self.state())

    def admit(self, specs: Iterable[TaskSpec]) -> tuple[Endpoint, ...]:
        """Promise room to all or none; where each can be reached, in order.

        Raises:
            Refused: to none.
            Conflict: one of them has run, and was acknowledged.
        """
        specs = tuple(specs)
        new = [spec for spec in specs if spec.key not in self.ledger.tasks]
        for spec in new:
            if spec.key in self.ledger.forgotten or self._folders(spec).log.exists():
                raise Conflict(f"task {spec.name} has run and was acknowledged; it does not run again")
            self._check_pace(spec)
        if new:
            held = [record.spec for record in self.ledger.tasks.values() if record.holds_capacity]
            self._read_declaration()
            node, capacity = self.declaration.name, self.declaration.available
            admission.check(node, capacity, held, new, self.isolations.strict_refusal)
            ports = [self.ports.lease(spec) for spec in new]
            for spec, leased in zip(new, ports, strict=True):
                self._admit(spec, leased)
            self.turn.after(_admitted)
        return tuple(self.ledger.tasks[spec.key].progress.endpoint for spec in specs)

    def release(self, keys: Iterable[TaskKey]) -> None:
        """Take back those that were never launched."""
        for key in keys:
            record = self.ledger.tasks.get(key)
            if record is not None and record.can_be_taken_back:
                self.ledger.remove(record)
                self.turn.changed(key)
                self.turn.after(_released)

    def launch(self, tasks: Iterable[LaunchTask]) -> None:
        """Start those that are admitted and not yet started."""
        for wanted in tasks:
            record = self.ledger.tasks.get(wanted.task)
            if record is None or not record.can_be_taken_back:
                continue
            try:  # before the ledger says that it is launched: then no one sends them again
                record.bootstrap = self._folders(record.spec).write_secrets(wanted.bootstrap)
            except OSError as error:
                self._never_started(record, f"the task's secrets cannot be written: {error}")
                continue
            record.progress = msgspec.structs.replace(record.progress, launched=True)
            self.ledger.put(record)
            self.turn.changed(record.key)
            self.turn.after(functools.partial(self._launched, record))

    def stop(self, key: TaskKey, grace_seconds: float, reason: StopReason) -> None:
        """Have the task end; see `Cluster.stop`."""
        record = self.ledger.tasks.get(key)
        if record is None or not record.holds_capacity:
            return
        now = self.clock.now()
        before = record.progress.stop
        if before is not None and self.remaining_grace(before) <= grace_seconds:
            return
        stop = StopRequest(
            reason=before.reason if before is not None else reason,
            first=before.first if before is not None else now,
            grace_seconds=grace_seconds,
            at=now,
        )
        progress = msgspec.structs.replace(record.progress, stop=stop)
        if record.can_be_taken_back:
            outcome = Outcome(reason="Signalled", exit_code=143, signal=15, stop_reason=stop.reason)
            progress = msgspec.structs.replace(progress, outcome=outcome, ended=now)
        self.ledger.advance(record, progress)
        self.turn.changed(key)
        self.turn.after(functools.partial(self._stopped, key))

    def acknowledge(self, key: TaskKey) -> None:
        """The task's outcome is recorded elsewhere: forget it, if it has ended."""
        record = self.ledger.tasks.get(key)
        if record is None or record.holds_capacity:
            return
        self.ledger.forget(record, self.clock.now())
        self.turn.changed(key)
        self.turn.after(functools.partial(self._acknowledged, record))

    def forget_job(self, namespace: str, job_uid: str, outputs: bool) -> None:
        """The job is gone: its leases, its shared folders."""
        self.ports.forget_job(namespace, job_uid)
        self.ledger.forget_job(namespace, job_uid)
        self.turn.after(functools.partial(self._forgotten, namespace, job_uid, outputs))

    def adopt(self, record: Record, stop: taskfiles.Stop | None) -> None:
        """Take a launched task into a ledger that has lost it."""
        if stop is not None:
            asked = StopRequest(
                reason=cast("StopReason", stop.reason),  # what an agent wrote
                first=stop.at,
                grace_seconds=stop.grace_seconds,
                at=stop.at,
            )
            record.progress = msgspec.structs.replace(record.progress, stop=asked)
        self.ledger.put(record)
        self.ports.adopt(record.spec, record.progress.endpoint.ports)

    def snapshot(self) -> tuple[Change, ...]:
        """All tasks, complete."""
        return tuple(self._change(key, whole=True) for key in self.ledger.tasks)

    def describe(self, record: Record, folders: TaskFolders) -> taskfiles.Launch:
        """What the supervisor is given."""
        bootstrap = record.bootstrap
        assert bootstrap is not None, "launched tasks have their bootstrap"
        parents = self.cgroup_parents
        return launch.description(self.home, folders, record.spec, bootstrap, cgroup_parents=parents)

    @property
    def cgroup_parents(self) -> Mapping[str, str]:
        """Where the tasks' control groups are."""
        return self.isolations.cgroup_parents

    def damaged(self, message: str) -> None:
        """A state file was put aside."""
        self.problem("StateDamaged", message)

    def claims(self, record: Record) -> list[int]:
        """Descriptors that the supervisor is to hold."""
        return self.ports.claims(record.progress.endpoint.ports.values())

    def remaining_grace(self, stop: StopRequest) -> float:
        """Seconds that the task still has."""
        passed = max(0.0, self.clock.now() - stop.at)  # a clock that was set back grants no more
        return max(0.0, stop.grace_seconds - passed)

    def started(self, record: Record, started: taskfiles.Started) -> None:
        """The command runs. Not recorded: it can be read again as long as it matters."""
        record.progress = msgspec.structs.replace(
            record.progress, started=started.started, unenforced=started.unenforced
        )
        self.turn.changed(record.key)
        self.on_started(record)

    def ended(self, record: Record, end: taskfiles.Exit) -> None:
        """Nothing of the task is left."""
        if not record.holds_capacity:
            return
        ended = end.ended or self.clock.now()
        stop = record.progress.stop
        asked = stop is not None and stop.first <= ended + CLOCK_SLACK_SECONDS
        outcome = Outcome(
            reason=cast("EndReason", end.reason),  # what supervisors write; checked when it is read back
            exit_code=end.exit_code,
            signal=end.signal,
            stop_reason=stop.reason if stop is not None and asked else None,
            message=end.message,
        )
        self.ledger.advance(
            record,
            msgspec.structs.replace(
                record.progress,
                outcome=outcome,
                stop=stop if asked else None,
                started=end.started or record.progress.started,
                ended=ended,
                cpu_seconds=end.cpu_seconds,
                peak_memory_bytes=end.peak_memory_bytes,
            ),
        )
        self.turn.changed(record.key)
        self.turn.after(functools.partial(self._ended, record))
        self.turn.otherwise(lambda _: self._end_later(record, end))

    def reap(self) -> None:
        """Collect children without a monitor, which a dead supervisor has left. Children that another
        caller waits for are left to it."""
        waited_for = {monitor.pid for monitor in self.monitors.values()} | self.exec_pids
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in waited_for:
                return
            with contextlib.suppress(ChildProcessError):
                os.waitpid(found.si_pid, os.WNOHANG)

    def attend(self, record: Record) -> TaskMonitor:
        """Begin to look after a launched task."""
        monitor = TaskMonitor(self, record, self._folders(record.spec))
        self.monitors[record.key] = monitor
        return monitor

    def empty_trash(self) -> None:
        """Remove what was discarded, in a thread of its own. What cannot be removed is put in quarantine
        and reported; the node goes on."""
        if self._emptying:
            return
        self._emptying = True

        def job() -> Callable[[], None]:
            problems: list[str] = []
            for item in list(self.paths.trash.iterdir()):
                found = cleanup.remove_tree(item)
                if found:
                    problems += found
                    launch.discard((item,), self.paths.quarantine)
            return lambda: self._emptied(problems)

        def failed(error: Exception) -> Callable[[], None]:
            return lambda: self._emptied([f"{self.paths.trash}: {error}"])

        self.loop.work(job, failed)

    def discard(self, paths: Iterable[Path]) -> None:
        """Have these folders gone."""
        try:
            launch.discard(paths, self.paths.trash)
        except OSError as error:
            report(f"a folder cannot be removed: {error}")
        self.empty_trash()

    def kill_all(self) -> None:
        """Kill every supervisor, and with it its task."""
        for monitor in self.monitors.values():
            monitor.kill()

    def close(self) -> None:
        """Let go of everything; tasks go on."""
        for monitor in self.monitors.values():
            monitor.close()
        self.ports.close()
        self.ledger.close()

    def _check_pace(self, spec: TaskSpec) -> None:
        """Whatever asks for it, a replica does not get incarnation after incarnation.

        Raises:
            Refused: it had too many of late.
        """
        now = self.clock.monotonic()
        replica = (spec.namespace, spec.job_uid, spec.role, spec.index)
        recent = [at for at in self._admitted.get(replica, ()) if now - at < PACE_SECONDS]
        if len(recent) >= PACE_INCARNATIONS:
            raise Refused(
                self.declaration.name,
                "TooManyRestarts",
                f"{spec.role} {spec.index} of job {spec.job} has started {len(recent)} times within "
                f"{PACE_SECONDS:g} s on node {self.declaration.name}",
            )
        if len(self._admitted) > MOST_PACED:
            self._admitted = {
                key: times for key, times in self._admitted.items() if now - times[-1] < PACE_SECONDS
            }
        self._admitted[replica] = [*recent, now]

    def _folders(self, spec: TaskSpec) -> TaskFolders:
        return TaskFolders(self.home, self.paths, spec)

    def _read_declaration(self) -> None:
        """What is reserved for others may have changed since the agent started."""
        with contextlib.suppress(OSError, ShoalError, ValueError):  # a damaged file changes nothing here
            found = [each for each in nodes.load(self.home) if each.name == self.declaration.name]
            self.declaration = found[0] if found else self.declaration

    def _admit(self, spec: TaskSpec, ports: dict[str, int]) -> None:
        endpoint = Endpoint(
            role=spec.role,
            index=spec.index,
            task=spec.name,
            node=self.declaration.name,
            host=HOST,
            ports=ports,
        )
        self.ledger.put(
            Record(spec=spec, progress=Progress(endpoint=endpoint, admitted=self.clock.now()))
        )
        self.turn.changed(spec.key, new=True)

    def _never_started(self, record: Record, message: str) -> None:
        outcome = Outcome(reason="StartFailed", exit_code=-1, message=message)
        progress = msgspec.structs.replace(record.progress, outcome=outcome, ended=self.clock.now())
        self.ledger.advance(record, progress)
        self.turn.changed(record.key)

    def _launched(self, record: Record) -> None:
        faults.point("agent.launch.recorded")
        self.loop.soon(self.attend(record).begin)

    def _stopped(self, key: TaskKey) -> None:
        faults.point("agent.stop.recorded")
        monitor = self.monitors.get(key)
        if monitor is not None:
            monitor.stop()

    def _ended(self, record: Record) -> None:
        faults.point("agent.end.recorded")
        key, places = record.key, self._folders(record.spec)
        (places.task / taskfiles.SECRETS).unlink(missing_ok=True)
        if places.secrets.exists():
            self.discard((places.secrets,))
        monitor = self.monitors.pop(key, None)
        self.idle_since.pop(key, None)
        self.ready.discard(key)
        if monitor is not None:
            monitor.close()

    def _end_later(self, record: Record, end: taskfiles.Exit) -> None:
        self.loop.later(RETRY_SECONDS, functools.partial(self.ended, record, end))

    def _acknowledged(self, record: Record) -> None:
        faults.point("agent.acknowledge.recorded")
        places = self._folders(record.spec)
        self.discard((places.task, places.work))
        faults.point("agent.acknowledge.removed")

    def _forgotten(self, namespace: str, job_uid: str, outputs: bool) -> None:
        faults.point("agent.forget.recorded")
        if outputs:
            self.discard((self.home.output / namespace / job_uid,))
        faults.point("agent.forget.removed")

    def _tell(self, changed: dict[TaskKey, bool]) -> None:
        self.on_change(tuple(self._change(key, new) for key, new in changed.items()))

    def _undone(self, error: Unavailable) -> None:
        """The ledger went back to what the disk has; what it never holds is put back."""
        report(error.message)
        self.ports.refresh()
        for monitor in self.monitors.values():
            if monitor.started is not None:
                self.started(monitor.record, monitor.started)

    def _emptied(self, problems: list[str]) -> None:
        self._emptying = False
        if problems:
            self.problem(
                "CleanupFailed",
                f"what tasks left cannot be removed and is kept in {self.paths.quarantine}: "
                + "; ".join(problems),
            )
        elif any(self.paths.trash.iterdir()):
            self.empty_trash()

    def _change(self, key: TaskKey, whole: bool) -> Change:
        record = self.ledger.tasks.get(key)
        if record is None:
            return Change(namespace=key.namespace, name=key.name, gone=True)
        return change_of(record.task(self.idle_since.get(key, 0.0), key in self.ready), whole=whole)


def report(text: str) -> None:
    """A line in the agent's log."""
    with contextlib.suppress(OSError):  # the disk is full: it cannot be reported
        os.write(2, f"{text}\n".encode(errors="replace"))


def _admitted() -> None:
    faults.point("agent.admit.recorded")


def _released() -> None:
    faults.point("agent.release.recorded")
