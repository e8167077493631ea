"""A cluster in virtual time: nodes with capacity, tasks that follow a script, faults on demand.

It keeps the contract of `shoal.cluster.base` to the letter, so the controllers that drive it are those
that drive real processes. Time is the clock's: `advance` it, then the ends that are due are there at
the next call. Used by the simulator, by tests of controllers, and to replay recorded fault traces.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from shoal.clock import Clock
from shoal.cluster.base import (
    Listing,
    NodeState,
    Outcome,
    Refused,
    Session,
    StopReason,
    Task,
    Tell,
    Usage,
)
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.node import Capacity
from shoal.objects.task import Endpoint, TaskBootstrap, TaskKey, TaskSpec

__all__ = ["Script", "SimulatedCluster", "run_for"]


@dataclass(frozen=True)
class Script:
    """How a task behaves if nobody interferes. Seconds of virtual time; None is for ever.

    `stops_after_seconds` is how long it takes to end after SIGTERM; None ignores it.
    """

    run_seconds: float | None = None
    exit_code: int = 0
    stops_after_seconds: float | None = 0.0
    stop_exit_code: int = 143
    output: bytes = b""


def run_for(seconds: float | None, exit_code: int = 0) -> Callable[[TaskSpec], Script]:
    """Every task runs that long and exits with that code."""
    return lambda spec: Script(run_seconds=seconds, exit_code=exit_code)


@dataclass
class _Running:
    task: Task
    script: Script
    told: TaskBootstrap | None = None
    ends_at: float | None = None
    outcome: Outcome | None = None
    kills_at: float | None = None


@dataclass
class _Node:
    capacity: Capacity
    labels: dict[str, str] = field(default_factory=dict[str, str])
    silent: bool = False
    tasks: dict[TaskKey, _Running] = field(default_factory=dict[TaskKey, _Running])


class SimulatedCluster:
    """See the module's docstring and `shoal.cluster.base.Cluster`."""

    def __init__(
        self, clock: Clock, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script]
    ) -> None:
        self._clock = clock
        self._behave = behave
        self._lock = threading.RLock()
        self._nodes = {name: _Node(capacity) for name, capacity in nodes.items()}
        self._watches: list[_Watch] = []
        self._logs: dict[TaskKey, bytes] = {}
        self.forgotten: list[tuple[str, bool]] = []

    def nodes(self) -> tuple[NodeState, ...]:
        """See `Cluster.nodes`."""
        with self._lock:
            return tuple(
                NodeState(
                    name=name,
                    ready=not node.silent,
                    capacity=node.capacity,
                    address="127.0.0.1",
                    message="does not answer" if node.silent else "",
                    labels=node.labels,
                )
                for name, node in sorted(self._nodes.items())
            )

    def list(self) -> Listing:
        """See `Cluster.list`."""
        with self._lock:
            self._pass_time()
            return Listing(
                tasks=tuple(
                    running.task
                    for _, node in sorted(self._nodes.items())
                    if not node.silent
                    for running in node.tasks.values()
                ),
                unreachable_nodes=tuple(sorted(n for n, node in self._nodes.items() if node.silent)),
            )

    def start(self, group: tuple[TaskSpec, ...], tell: Tell) -> None:
        """See `Cluster.start`."""
        with self._lock:
            self._pass_time()
            for spec in group:
                self._answering(spec.placement.node)
            added: list[TaskSpec] = []
            try:
                for spec in group:
                    if self._find(spec.key) is None:
                        self._admit(spec)
                        added.append(spec)
            except Refused:
                for spec in added:
                    del self._nodes[spec.placement.node].tasks[spec.key]
                raise
            endpoints = tuple(self._endpoint(spec) for spec in group)
            told = tell(group, endpoints)
            for spec in group:
                self._launch(spec, told[spec.name])

    def stop(self, task: TaskKey, *, grace_seconds: float, reason: StopReason) -> None:
        """See `Cluster.stop`."""
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
            if running.task.phase == "Admitted":
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
        """See `Cluster.acknowledge`."""
        with self._lock:
            self._pass_time()
            self._not_on_a_silent_node(task)
            running = self._find(task)
            if running is not None and running.task.phase == "Ended":
                del self._nodes[running.task.spec.placement.node].tasks[task]

    def watch(self) -> _Watch:
        """See `Cluster.watch`."""
        with self._lock:
            watch = _Watch(self)
            self._watches.append(watch)
            return watch

    def logs(self, task: TaskKey) -> Iterator[bytes]:
        """See `Cluster.logs`."""
        text = self._logs.get(task, b"")
        if text:
            yield text

    def exec(self, task: TaskKey, command: tuple[str, ...], *, tty: bool = False) -> Session:
        """See `Cluster.exec`: there is no process to run beside."""
        raise NotFound(f"task {task.name} is simulated: nothing can run beside it")

    def usage(self, task: TaskKey) -> Usage:
        """See `Cluster.usage`."""
        with self._lock:
            running = self._find(task)
            if running is None:
                raise NotFound(f"no task {task.name}")
            begun = running.task.started or self._clock.now()
            seconds = (running.task.ended or self._clock.now()) - begun
            return Usage(cpu_seconds=seconds * int(running.task.spec.cpu) / 1000)

    def cleanup_job(self, namespace: str, job_uid: str, *, outputs: bool) -> None:
        """See `Cluster.cleanup_job`."""
        self.forgotten.append((job_uid, outputs))

    def next_event(self) -> float | None:
        """Seconds until the next task ends by itself or is killed; None when none will."""
        with self._lock:
            times = [
                time
                for node in self._nodes.values()
                for running in node.tasks.values()
                if running.task.phase != "Ended"
                for time in (running.ends_at, running.kills_at)
                if time is not None
            ]
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

    def silence(self, node: str, silent: bool = True) -> None:
        """The node stops answering, or answers again; its tasks go on meanwhile."""
        with self._lock:
            self._nodes[node].silent = silent
            for watch in self._watches:
                watch.missed()

    def told(self, task: TaskKey) -> TaskBootstrap | None:
        """What the task was told at its start."""
        running = self._find(task)
        return running.told if running is not None else None

    def _admit(self, spec: TaskSpec) -> None:
        name = spec.placement.node
        node = self._nodes[name]
        held = [r.task.spec for r in node.tasks.values() if r.task.phase != "Ended"]
        cpu = sum(int(other.cpu) for other in held) + int(spec.cpu)
        memory = sum(int(other.memory or 0) for other in held) + int(spec.memory or 0)
        taken: Counter[str] = Counter()
        for other in held:
            for device in other.placement.devices:
                taken[device] += other.placement.thousandths
        _refuse_if(cpu > int(node.capacity.cpu), name, "OutOfCpu")
        _refuse_if(memory > int(node.capacity.memory), name, "OutOfMemory")
        for device in spec.placement.devices:
            left = 1000 - taken[device] if device in node.capacity.gpus else 0
            _refuse_if(left < spec.placement.thousandths, name, "DeviceTaken")
        task = Task(
            spec=spec, phase="Admitted", endpoint=self._endpoint(spec), admitted=self._clock.now()
        )
        node.tasks[spec.key] = _Running(task, self._behave(spec))

    def _launch(self, spec: TaskSpec, told: TaskBootstrap) -> None:
        running = self._find(spec.key)
        if running is None or running.task.phase != "Admitted":
            return
        now, script = self._clock.now(), running.script
        running.told = told
        running.task = msgspec.structs.replace(running.task, phase="Running", started=now)
        if script.run_seconds is not None:
            self._schedule(running, now + script.run_seconds, script.exit_code)
        self._logs[spec.key] = script.output
        self._changed(running.task)

    def _schedule(self, running: _Running, at: float, exit_code: int) -> None:
        if running.ends_at is not None and running.ends_at <= at:
            return
        running.ends_at = at
        signal = exit_code - 128 if exit_code > 128 else 0
        reason = "Signalled" if signal else "Exited"
        running.outcome = Outcome(reason=reason, exit_code=exit_code, signal=signal)

    def _pass_time(self) -> None:
        now = self._clock.now()
        for node in self._nodes.values():
            for running in node.tasks.values():
                if running.task.phase == "Ended":
                    continue
                ends, kills = running.ends_at, running.kills_at
                if ends is not None and ends <= now and (kills is None or ends <= kills):
                    self._end(running, running.outcome or Outcome(reason="Exited", exit_code=0), ends)
                elif kills is not None and kills <= now:
                    self._end(running, Outcome(reason="Signalled", exit_code=137, signal=9), kills)

    def _end(self, running: _Running, outcome: Outcome, at: float | None = None) -> None:
        outcome = msgspec.structs.replace(
            outcome, stop_reason=running.task.stop_reason or outcome.stop_reason
        )
        running.task = msgspec.structs.replace(
            running.task,
            phase="Ended",
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

    def _answering(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            raise Refused(name, "NodeUnknown", f"there is no node {name}")
        if node.silent:
            _unavailable(name)

    def _not_on_a_silent_node(self, task: TaskKey) -> None:
        for name, node in self._nodes.items():
            if node.silent and task in node.tasks:
                _unavailable(name)

    def _changed(self, task: Task) -> None:
        if not self._nodes[task.spec.placement.node].silent:
            for watch in self._watches:
                watch.push(task)

    def drop(self, watch: _Watch) -> None:
        """A watch was closed."""
        with self._lock:
            self._watches = [other for other in self._watches if other is not watch]

    def settle(self) -> None:
        """Let what is due now happen, and the watches hear of it."""
        with self._lock:
            self._pass_time()


class _Watch:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._tasks: dict[TaskKey, Task] = {}
        self._relist = False
        self._ready = threading.Event()
        self._wake: Callable[[], None] = self._ready.set

    def push(self, task: Task) -> None:
        with self._lock:
            self._tasks[task.spec.key] = task
        self._ready.set()
        self._wake()

    def missed(self) -> None:
        self._relist = True
        self._ready.set()
        self._wake()

    def wait(self, timeout_seconds: float) -> list[Task]:
        self._cluster.settle()
        if timeout_seconds > 0:
            self._ready.wait(timeout_seconds)
        with self._lock:
            tasks, self._tasks = list(self._tasks.values()), {}
            self._ready.clear()
        return tasks

    @property
    def relist(self) -> bool:
        relist, self._relist = self._relist, False
        return relist

    def on_ready(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        if self._tasks or self._relist:
            wake()

    def close(self) -> None:
        self._cluster.drop(self)


def _refuse_if(wrong: bool, node: str, reason: str) -> None:
    if wrong:
        raise Refused(node, reason, f"node {node} has no room: {reason}")


def _unavailable(node: str) -> NoReturn:
    raise Unavailable(f"node {node} does not answer")
