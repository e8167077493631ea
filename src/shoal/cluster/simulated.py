"""A cluster in virtual time: nodes with capacity, tasks that follow a script, faults on demand.

It keeps the contract of `shoal.cluster.base` to the letter, so the controllers that drive it are those
that drive real processes. Time is the clock's: `advance` it, then the ends that are due are there at
the next call. Used by the simulator, by tests of controllers, and to replay recorded fault traces.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from shoal.clock import Clock
from shoal.cluster.base import (
    Listing,
    NodeState,
    NodeWatch,
    Outcome,
    Refusal,
    Refused,
    Session,
    StopReason,
    Task,
    TaskWatch,
    Usage,
    Watches,
)
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.node import Capacity, Taint
from shoal.objects.task import Endpoint, TaskBootstrap, TaskKey, TaskSpec


@dataclass(frozen=True)
class Script:
    """How a task behaves if it is not stopped. Seconds of virtual time; None is for ever.

    `stops_after_seconds` is how long it takes to end after SIGTERM; None ignores it.
    """

    run_seconds: float | None = None
    exit_code: int = 0
    stops_after_seconds: float | None = 0.0
    stop_exit_code: int = 143
    output: bytes = b""
    admit_seconds: float = 0.0
    """How long its node takes to admit it."""
    endpoint_seconds: float = 0.0
    """How long after its admission its endpoint is known."""
    ready_seconds: float | None = 0.0
    """How long after its start its readiness probe succeeds; None: never."""


def run_for(seconds: float | None, exit_code: int = 0) -> Callable[[TaskSpec], Script]:
    """Every task runs that long and exits with that code."""
    return lambda spec: Script(run_seconds=seconds, exit_code=exit_code)


@dataclass
class _Running:
    task: Task
    script: Script
    ready_at: float | None = None
    ends_at: float | None = None
    outcome: Outcome | None = None
    kills_at: float | None = None


@dataclass
class _Node:
    capacity: Capacity
    labels: dict[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    foreign: Capacity = field(default_factory=Capacity)
    problems: dict[str, str] = field(default_factory=dict[str, str])
    silent: bool = False
    tasks: dict[TaskKey, _Running] = field(default_factory=dict[TaskKey, _Running])


@dataclass
class _Group:
    specs: tuple[TaskSpec, ...]
    admits_at: float


class SimulatedCluster:
    """See the module's docstring and `shoal.cluster.base.Cluster`."""

    def __init__(
        self, clock: Clock, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script]
    ) -> None:
        self._clock = clock
        self._behave = behave
        self._lock = threading.RLock()
        self._nodes = {name: _Node(capacity) for name, capacity in nodes.items()}
        self._groups: list[_Group] = []
        self._refused: dict[TaskKey, Task] = {}
        self._watches = Watches(self.settle)
        self._logs: dict[TaskKey, bytes] = {}
        self.forgotten: list[tuple[str, bool]] = []

    def nodes(self) -> tuple[NodeState, ...]:
        with self._lock:
            return tuple(
                NodeState(
                    name=name,
                    ready=not node.silent,
                    capacity=node.capacity,
                    address="127.0.0.1",
                    message="does not answer" if node.silent else "",
                    labels=node.labels,
                    taints=node.taints,
                    unschedulable=node.unschedulable,
                    foreign=node.foreign,
                    problems=node.problems,
                )
                for name, node in sorted(self._nodes.items())
            )

    def list(self) -> Listing:
        with self._lock:
            self._pass_time()
            return Listing(
                tasks=(
                    *(
                        running.task
                        for _, node in sorted(self._nodes.items())
                        if not node.silent
                        for running in node.tasks.values()
                    ),
                    *self._refused.values(),
                ),
                unreachable_nodes=tuple(sorted(n for n, node in self._nodes.items() if node.silent)),
            )

    def ensure(self, group: tuple[TaskSpec, ...]) -> None:
        with self._lock:
            self._pass_time()
            new = [s for s in group if self._find(s.key) is None and s.key not in self._refused]
            for spec in group:
                if (node := self._nodes.get(spec.placement.node)) is not None and node.silent:
                    _unavailable(spec.placement.node)
            if not new:
                return
            scripts = {spec.key: self._behave(spec) for spec in new}
            for spec in new:
                task = Task(spec=spec, phase="Pending")
                if spec.placement.node in self._nodes:
                    running = _Running(task, scripts[spec.key])
                    self._nodes[spec.placement.node].tasks[spec.key] = running
                self._changed(task)
            seconds = max(script.admit_seconds for script in scripts.values())
            self._groups.append(_Group(group, self._clock.now() + seconds))
            self._pass_time()

    def bootstrap(self, tasks: Mapping[TaskKey, TaskBootstrap]) -> None:
        with self._lock:
            self._pass_time()
            for key in tasks:
                running = self._find(key)
                if running is not None and not self._nodes[running.task.spec.placement.node].silent:
                    self._launch(running)
            for key in tasks:
                self._not_on_a_silent_node(key)

    def stop(self, task: TaskKey, *, grace_seconds: float, reason: StopReason) -> None:
        with self._lock:
            self._pass_time()
            running = self._find(task)
            if running is None:
                self._not_on_a_silent_node(task)
                return
            if running.task.phase == "Ended":
                return
            now = self._clock.now()
            first = running.task.stop_reason or reason
            if running.task.phase in ("Pending", "Admitted"):
                self._end(
                    running, Outcome(reason="Signalled", exit_code=143, signal=15, stop_reason=first)
                )
                return
            kills_at = now + grace_seconds
            running.kills_at = min(running.kills_at or kills_at, kills_at)
            running.task = msgspec.structs.replace(running.task, phase="Terminating", stop_reason=first)
            script = running.script
            if script.stops_after_seconds is not None:
                self._schedule(running, now + script.stops_after_seconds, script.stop_exit_code)
            self._changed(running.task)
            self._pass_time()

    def acknowledge(self, task: TaskKey) -> None:
        with self._lock:
            self._pass_time()
            self._not_on_a_silent_node(task)
            self._refused.pop(task, None)
            running = self._find(task)
            if running is not None and running.task.phase == "Ended":
                del self._nodes[running.task.spec.placement.node].tasks[task]

    def watch(self) -> TaskWatch:
        return self._watches.open()

    def watch_nodes(self) -> NodeWatch:
        return self._watches.open_nodes()

    def logs(self, task: TaskKey) -> Iterator[bytes]:
        text = self._logs.get(task, b"")
        if text:
            yield text

    def exec(self, task: TaskKey, command: tuple[str, ...], *, tty: bool = False) -> Session:
        """See `Cluster.exec`: there is no process to run beside."""
        raise NotFound(f"task {task.name} is simulated: nothing can run beside it")

    def forward(self, task: TaskKey, port: int) -> Session:
        """See `Cluster.forward`: there is no process that listens."""
        raise NotFound(f"task {task.name} is simulated: nothing listens in it")

    def usage(self, tasks: Iterable[TaskKey]) -> dict[TaskKey, Usage]:
        with self._lock:
            found = {key: running for key in tasks if (running := self._find(key)) is not None}
            return {
                key: self._usage(running.task)
                for key, running in found.items()
                if not self._nodes[running.task.spec.placement.node].silent
            }

    def cleanup_job(self, namespace: str, job_uid: str, *, outputs: bool) -> None:
        self.forgotten.append((job_uid, outputs))

    def next_event(self) -> float | None:
        """Seconds until the next change that time alone brings; None when there is none."""
        with self._lock:
            times = [group.admits_at for group in self._groups]
            for node in self._nodes.values():
                for running in node.tasks.values():
                    if running.task.phase == "Admitted" and running.task.endpoint is None:
                        times.append(running.task.admitted + running.script.endpoint_seconds)
                    elif running.task.phase not in ("Pending", "Ended"):
                        due = (running.ends_at, running.kills_at, running.ready_at)
                        times += [time for time in due if time is not None]
            return max(0.0, min(times) - self._clock.now()) if times else None

    def kill(self, task: TaskKey, signal: int = 9) -> None:
        """A stranger kills the task's command."""
        self._fault(task, Outcome(reason="Signalled", exit_code=128 + signal, signal=signal))

    def lose_supervisor(self, task: TaskKey) -> None:
        """The task's supervisor dies, and the task with it."""
        self._fault(task, Outcome(reason="SupervisorLost", exit_code=-1, message="lost its supervisor"))

    def run_out_of_memory(self, task: TaskKey) -> None:
        """The task passes its memory limit."""
        self._fault(task, Outcome(reason="OutOfMemory", exit_code=137, signal=9))

    def end(self, task: TaskKey, outcome: Outcome) -> None:
        """The task ends now, and exactly so, whether or not a stop was asked for; nothing happens unless
        it runs."""
        with self._lock:
            self._pass_time()
            running = self._find(task)
            if running is not None and running.task.phase in ("Running", "Terminating"):
                stop = outcome.stop_reason
                running.task = msgspec.structs.replace(running.task, stop_reason=stop)
                self._end(running, outcome)

    def refuse(self, spec: TaskSpec, refusal: Refusal) -> None:
        """The task is refused and holds nothing; nothing happens once it runs."""
        with self._lock:
            running = self._find(spec.key)
            if running is not None and running.task.phase not in ("Pending", "Admitted"):
                return
            if running is not None:
                del self._nodes[spec.placement.node].tasks[spec.key]
            now = self._clock.now()
            outcome = Outcome(reason="Refused", exit_code=-1, message=refusal.message)
            task = Task(spec=spec, phase="Ended", outcome=outcome, refusal=refusal, ended=now)
            self._refused[spec.key] = task
            self._changed(task)

    def silence(self, node: str, silent: bool = True) -> None:
        """The node stops answering, or answers again; its tasks go on."""
        with self._lock:
            self._nodes[node].silent = silent
            self._watches.missed()

    def declare(
        self,
        node: str,
        *,
        labels: dict[str, str] | None = None,
        taints: tuple[Taint, ...] | None = None,
        unschedulable: bool | None = None,
        foreign: Capacity | None = None,
        problems: dict[str, str] | None = None,
    ) -> None:
        """The node declares something else of itself, or others use so much of it; None: as before."""
        with self._lock:
            there = self._nodes[node]
            there.labels = there.labels if labels is None else labels
            there.taints = there.taints if taints is None else taints
            there.unschedulable = there.unschedulable if unschedulable is None else unschedulable
            there.foreign = there.foreign if foreign is None else foreign
            there.problems = there.problems if problems is None else problems
            self._watches.nodes_changed()

    def _admit_group(self, group: _Group) -> None:
        """All or none of those that still wait; a refusal takes back what was admitted."""
        admitted: list[_Running] = []
        try:
            for spec in group.specs:
                running = self._find(spec.key)
                if running is None or running.task.phase == "Pending":
                    admitted.append(self._admit(spec, running))
        except Refused as refused:
            refusal = Refusal(node=refused.node, reason=refused.reason, message=refused.message)
            for spec in group.specs:
                self.refuse(spec, refusal)
            return
        for running in admitted:
            self._changed(running.task)

    def _admit(self, spec: TaskSpec, running: _Running | None) -> _Running:
        """Raises:
        Refused: its node has no room for it.
        """
        name = spec.placement.node
        if running is None:
            raise Refused(name, "NodeUnknown", f"there is no node {name}")
        node = self._nodes[name]
        held = [r.task.spec for r in node.tasks.values() if r.task.phase not in ("Pending", "Ended")]
        cpu = sum(int(other.cpu) for other in held) + int(spec.cpu)
        memory = sum(int(other.memory or 0) for other in held) + int(spec.memory or 0)
        taken: Counter[str] = Counter()
        for other in held:
            for device in other.placement.devices:
                taken[device] += other.placement.thousandths
        _refuse_if(cpu > int(node.capacity.cpu) - int(node.foreign.cpu), name, "OutOfCpu")
        _refuse_if(memory > int(node.capacity.memory) - int(node.foreign.memory), name, "OutOfMemory")
        for device in spec.placement.devices:
            free = device in node.capacity.gpus and device not in node.foreign.gpus
            left = 1000 - taken[device] if free else 0
            _refuse_if(left < spec.placement.thousandths, name, "DeviceTaken")
        endpoint = self._endpoint(spec) if running.script.endpoint_seconds <= 0 else None
        running.task = Task(spec=spec, phase="Admitted", endpoint=endpoint, admitted=self._clock.now())
        return running

    def _launch(self, running: _Running) -> None:
        if running.task.phase != "Admitted" or running.task.endpoint is None:
            return
        now, script, spec = self._clock.now(), running.script, running.task.spec
        ready = spec.readiness is None
        running.task = msgspec.structs.replace(
            running.task, phase="Running", bootstrapped=True, started=now, ready=ready
        )
        if not ready and script.ready_seconds is not None:
            running.ready_at = now + script.ready_seconds
        if script.run_seconds is not None:
            self._schedule(running, now + script.run_seconds, script.exit_code)
        self._logs[spec.key] = script.output
        self._changed(running.task)
        self._pass_time()

    def _usage(self, task: Task) -> Usage:
        begun = task.started or self._clock.now()
        seconds = (task.ended or self._clock.now()) - begun
        return Usage(cpu_seconds=seconds * int(task.spec.cpu) / 1000)

    def _schedule(self, running: _Running, at: float, exit_code: int) -> None:
        if running.ends_at is not None and running.ends_at <= at:
            return
        running.ends_at = at
        signal = exit_code - 128 if exit_code > 128 else 0
        reason = "Signalled" if signal else "Exited"
        running.outcome = Outcome(reason=reason, exit_code=exit_code, signal=signal)

    def _pass_time(self) -> None:
        now = self._clock.now()
        due = [group for group in self._groups if self._answers(group) and group.admits_at <= now]
        self._groups = [group for group in self._groups if group not in due]
        for group in due:
            self._admit_group(group)
        for node in self._nodes.values():
            for running in node.tasks.values():
                task = running.task
                if task.phase in ("Pending", "Ended"):
                    continue
                if task.endpoint is None and task.admitted + running.script.endpoint_seconds <= now:
                    endpoint = self._endpoint(task.spec)
                    running.task = msgspec.structs.replace(task, endpoint=endpoint)
                    self._changed(running.task)
                if running.ready_at is not None and running.ready_at <= now:
                    running.ready_at = None
                    running.task = msgspec.structs.replace(running.task, ready=True)
                    self._changed(running.task)
                ends, kills = running.ends_at, running.kills_at
                if ends is not None and ends <= now and (kills is None or ends <= kills):
                    self._end(running, running.outcome or Outcome(reason="Exited", exit_code=0), ends)
                elif kills is not None and kills <= now:
                    self._end(running, Outcome(reason="Signalled", exit_code=137, signal=9), kills)

    def _end(self, running: _Running, outcome: Outcome, at: float | None = None) -> None:
        outcome = msgspec.structs.replace(
            outcome, stop_reason=running.task.stop_reason or outcome.stop_reason
        )
        running.ready_at = None
        running.task = msgspec.structs.replace(
            running.task,
            phase="Ended",
            usage=self._usage(running.task),
            ready=False,
            outcome=outcome,
            stop_reason=outcome.stop_reason,
            ended=self._clock.now() if at is None else at,
        )
        self._changed(running.task)

    def _fault(self, task: TaskKey, outcome: Outcome) -> None:
        with self._lock:
            self._pass_time()
            running = self._find(task)
            if running is not None and running.task.phase in ("Running", "Terminating"):
                self._end(running, outcome)

    def _endpoint(self, spec: TaskSpec) -> Endpoint:
        base = 20_000 + spec.index * 16
        names = sorted({*spec.ports, "rendezvous"})
        return Endpoint(
            role=spec.role,
            index=spec.index,
            task=spec.name,
            node=spec.placement.node,
            host="127.0.0.1",
            ports={name: base + position for position, name in enumerate(names)},
        )

    def _find(self, key: TaskKey) -> _Running | None:
        return next((node.tasks[key] for node in self._nodes.values() if key in node.tasks), None)

    def _answers(self, group: _Group) -> bool:
        names = {spec.placement.node for spec in group.specs}
        return not any(name in names and node.silent for name, node in self._nodes.items())

    def _not_on_a_silent_node(self, task: TaskKey) -> None:
        for name, node in self._nodes.items():
            if node.silent and task in node.tasks:
                _unavailable(name)

    def _changed(self, task: Task) -> None:
        node = self._nodes.get(task.spec.placement.node)
        if node is None or not node.silent:
            self._watches.push((task,))

    def settle(self) -> None:
        """Let what is due now happen, and the watches receive it."""
        with self._lock:
            self._pass_time()


def _refuse_if(wrong: bool, node: str, reason: str) -> None:
    if wrong:
        raise Refused(node, reason, f"node {node} has no room: {reason}")


def _unavailable(node: str) -> NoReturn:
    raise Unavailable(f"node {node} does not answer")
