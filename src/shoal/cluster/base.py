"""The Cluster: nodes and the tasks on them. The rules here are the contract.

**Names.** A task's name is unique within its namespace and never used twice: it holds the job's name
and uid, role, index and incarnation (`shoal.objects.task.task_name`).

**Desired state.** `ensure` states that a group of tasks is wanted and returns at once, as do
`bootstrap`, `stop` and `acknowledge`: what becomes of it is observed through `list` and `watch`. Each is
idempotent by task name, so a caller that was cut anywhere calls again.

**Phases.** `Pending`: wanted, not yet admitted everywhere. `Admitted`: its node holds capacity for it;
its endpoint follows, at once or later. `Running`: its command runs, which needs its `TaskBootstrap`:
the caller renders rendezvous once the endpoints of the whole group are observed, and hands it over with
`bootstrap`. `Terminating`: a stop was asked for. `Ended`: with its outcome.

**Groups.** All tasks of a group are admitted or none. Each node admits against its own ledger (capacity
less the use by others, device ids, ports) and is the last judge. A refusal is an observation: every task
of the group is `Ended` with a `Refusal` that names the node and the reason, holds nothing, and stays
listed until it is acknowledged. A crash in the middle leaves tasks `Admitted` at most, which a repeated
`ensure` adopts and `stop` ends.

**Ends.** An ended task stays listed, with its outcome, until it is acknowledged; acknowledging one
that still runs, or that is not there, does nothing. The reason of a stop is durable before its signal
is sent, and comes back with the outcome. A second `stop` may shorten the grace, never lengthen it.

**Absence** means something only in a list that says it is complete. A node that does not answer makes
the list incomplete and is named in it; what is not yet recorded by a node may be gone when the caller's
connection, or its process, is: it is wanted again by the next `ensure`.

**Logs** outlive their task and its acknowledgement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

from shoal.objects.errors import ShoalError
from shoal.objects.meta import Part, Stamp
from shoal.objects.node import Capacity, Taint
from shoal.objects.task import Endpoint, TaskBootstrap, TaskKey, TaskSpec

StopReason = Literal[
    "Cancelled", "Suspended", "Preempted", "Shrunk", "GangRestart", "JobFinished", "WallTime",
    "NodeHours", "IdleTimeout", "NodeDrained", "Deleted", "Refused", "Resized", "Shutdown", "Fenced",
]  # fmt: skip
"""Why the platform ended a task. A task that ended by itself has none."""

EndReason = Literal[
    "Exited", "Signalled", "OutOfMemory", "CommandNotFound", "SupervisorLost", "NodeLost", "StartFailed",
    "Refused",
]  # fmt: skip
"""How a task ended: by itself, by a signal, over its memory limit, never started because the command
cannot be run (127 not found, 126 not executable), through the infrastructure's fault, or refused."""

TaskPhase = Literal["Pending", "Admitted", "Running", "Terminating", "Ended"]


class Outcome(Part, frozen=True, kw_only=True):
    """How a task ended."""

    reason: EndReason
    exit_code: int
    """0 to 255; 128 + signal; -1 when it is not known (lost, refused)."""
    signal: int = 0
    stop_reason: StopReason | None = None
    """Why the platform asked it to end, if it did before the end."""
    message: str = ""


class Refusal(Part, frozen=True, kw_only=True):
    """A group was not admitted: a placement failure, never the user's fault."""

    node: str
    """The node that refused."""
    reason: str
    """A CamelCase code: OutOfCpu, OutOfMemory, DeviceTaken, Unsupported ..."""
    message: str = ""


class Usage(Part, frozen=True, kw_only=True):
    """What a task has used."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    gpu_ratio: float | None = None


class TaskState(Part, frozen=True, kw_only=True):
    """What changes in the life of a task."""

    phase: TaskPhase
    endpoint: Endpoint | None = None
    bootstrapped: bool = False
    """Its `TaskBootstrap` is recorded: it is started, whatever happens to the caller."""
    ready: bool = False
    """It runs, and its readiness probe, if it has one, succeeds."""
    outcome: Outcome | None = None
    refusal: Refusal | None = None
    stop_reason: StopReason | None = None
    admitted: Stamp = 0.0
    started: Stamp = 0.0
    ended: Stamp = 0.0
    idle_since: Stamp = 0.0
    """Since when it has used less than 1 % of a core; 0: it works."""
    unenforced: tuple[str, ...] = ()
    """Isolations that its node could not give it."""
    usage: Usage | None = None
    """What it had used when it ended."""


class Task(TaskState, frozen=True, kw_only=True):
    """A task as its node knows it."""

    spec: TaskSpec


class NodeState(Part, frozen=True, kw_only=True):
    """A node as the cluster knows it."""

    name: str
    ready: bool
    capacity: Capacity = Capacity()
    """What tasks may be given on it, whether by Shoal or by others (Kubernetes: allocatable)."""
    foreign: Capacity = Capacity()
    """The part of the capacity that others use; `gpus` are the devices that they hold."""
    address: str = ""
    message: str = ""
    isolations: dict[str, str] = {}
    """Isolation to `enforced` or the reason why not."""
    labels: dict[str, str] = {}
    """Labels that the node declares of itself; people's labels add to them."""
    taints: tuple[Taint, ...] = ()
    """Taints that the node declares of itself; people's taints add to them."""
    unschedulable: bool = False
    """The node itself takes no new tasks (Kubernetes: cordoned)."""
    problems: dict[str, str] = {}
    """What needs a person though the node works on: condition type (`CleanupFailed`, `StateDamaged`) to
    message."""


class Listing(Part, frozen=True, kw_only=True):
    """Every task on the nodes that answered."""

    tasks: tuple[Task, ...] = ()
    unreachable_nodes: tuple[str, ...] = ()
    """Nodes that did not answer: of their tasks nothing is known."""
    version: str = ""
    """Where a watch continues."""


class Refused(ShoalError):
    """A node does not admit a task. Raised within a cluster; callers of `ensure` observe a `Refusal`."""

    code = "PlacementRefused"
    http_status = 409

    def __init__(self, node: str, reason: str, message: str) -> None:
        super().__init__(message, details={"node": node, "reason": reason})
        self.node = node
        self.reason = reason


class NodeWatch(Protocol):
    """Signals that `Cluster.nodes` may answer differently. Not shared between threads."""

    def on_ready(self, wake: Callable[[], None]) -> None:
        """Call `wake` (any thread, must not block) after each change of a node: it comes, goes, begins
        or ceases to answer, or its labels, taints, capacity or use by others change."""

    def close(self) -> None:
        """End it; idempotent."""


class TaskWatch(Protocol):
    """Delivers tasks that changed. Not shared between threads."""

    def wait(self, timeout_seconds: float) -> list[Task]:
        """Tasks that changed since the last call, newest state; waits for the first. An empty list
        after a reconnect or an overflow means nothing: `relist` is then true."""
        ...

    @property
    def relist(self) -> bool:
        """True when changes may have been missed: list again. Reading it resets it."""
        ...

    def on_ready(self, wake: Callable[[], None]) -> None:
        """Call `wake` (any thread, must not block) when `wait(0)` may have something."""

    def close(self) -> None:
        """End it; idempotent."""


class Session(Protocol):
    """A command that runs beside a task (`shoal exec`), in the same isolation."""

    def send(self, data: bytes) -> None:
        """To its standard input; empty closes it."""

    def receive(self) -> tuple[Literal["out", "err", "exit"], bytes]:
        """The next piece of output; ("exit", b"CODE") is the last."""
        ...

    def resize(self, rows: int, columns: int) -> None:
        """Size of the terminal, if it has one."""

    def close(self) -> None:
        """End the command if it still runs; idempotent."""


class Cluster(Protocol):
    """Where tasks run; see the module's docstring for the rules. Thread-safe."""

    def nodes(self) -> tuple[NodeState, ...]:
        """All nodes, ready or not."""
        ...

    def list(self) -> Listing:
        """All tasks that are not yet acknowledged."""
        ...

    def ensure(self, group: tuple[TaskSpec, ...]) -> None:
        """The group is wanted: admit all of it or nothing; see **Desired state** and **Groups**.

        Raises:
            Unavailable: a node of the group is known not to answer; nothing is asked of any node.
        """

    def bootstrap(self, tasks: Mapping[TaskKey, TaskBootstrap]) -> None:
        """Have these tasks run with this environment and these files. One that is not admitted, or that
        has its bootstrap already, is passed over.

        Raises:
            Unavailable: a node of the tasks is known not to answer; the others have been asked.
        """

    def stop(self, task: TaskKey, *, grace_seconds: float, reason: StopReason) -> None:
        """End the task: SIGTERM, and SIGKILL after the grace. The stop is observed as `Terminating`.

        Nothing happens when it has ended or is not there.

        Raises:
            Unavailable: a node that has or may have the task is known not to answer.
        """

    def acknowledge(self, task: TaskKey) -> None:
        """Its outcome is recorded: forget the task. Its scratch folder goes.

        Raises:
            Unavailable: a node that has or may have the task is known not to answer.
        """

    def watch(self) -> TaskWatch:
        """Changes of tasks from now on."""
        ...

    def watch_nodes(self) -> NodeWatch:
        """Changes of nodes from now on."""
        ...

    def logs(self, task: TaskKey) -> Iterator[bytes]:
        """What the task has written so far and is still kept, as raw bytes."""
        ...

    def exec(self, task: TaskKey, command: tuple[str, ...], *, tty: bool = False) -> Session:
        """Run a command beside the task, in its isolation.

        Raises:
            NotFound: no such task runs.
        """
        ...

    def forward(self, task: TaskKey, port: int) -> Session:
        """Connect to a TCP port on the loopback of the task's network. The session sends to the
        connection (empty: closes that half). "err" is `+` once it is connected. "out" is a stream of
        pieces of what the task sends, each after its length in four bytes, most significant first; an
        empty piece says that the task has closed its half. The chunks of `receive` are not the pieces.
        The session exits with 0, 111 (nothing listens there) or 104 (reset).

        Raises:
            NotFound: no such task runs, or tasks of this cluster cannot be connected to.
        """
        ...

    def usage(self, tasks: Iterable[TaskKey]) -> dict[TaskKey, Usage]:
        """What the tasks have used so far: one call per node, not per task. Tasks that no node knows,
        and those of nodes that do not answer within a second, are left out."""
        ...

    def cleanup_job(self, namespace: str, job_uid: str, *, outputs: bool) -> None:
        """The job is deleted, or its clean-up asks for it: remove its shared folders on all nodes.
        `outputs` includes `$SHOAL_OUTPUT`. Waits a second at most.

        Raises:
            Unavailable: a node has not confirmed it; call again.
        """


class Watches:
    """The open watches of a cluster, for its implementations. Thread-safe."""

    def __init__(self, settle: Callable[[], None] = lambda: None) -> None:
        """`settle` is called before a watch of tasks waits: it may push what is due."""
        self._settle = settle
        self._lock = threading.Lock()
        self._watches: tuple[_TaskWatch, ...] = ()
        self._node_watches: tuple[_NodeWatch, ...] = ()

    def open(self) -> TaskWatch:
        """A new watch of tasks."""
        watch = _TaskWatch(self._drop, self._settle)
        with self._lock:
            self._watches = (*self._watches, watch)
        return watch

    def open_nodes(self) -> NodeWatch:
        """A new watch of nodes."""
        watch = _NodeWatch(self._drop)
        with self._lock:
            self._node_watches = (*self._node_watches, watch)
        return watch

    def push(self, tasks: Sequence[Task]) -> None:
        """These tasks changed."""
        for watch in self._watches if tasks else ():
            watch.push(tasks)

    def missed(self) -> None:
        """Changes of tasks may have been missed, and nodes may have changed."""
        for watch in self._watches:
            watch.push(None)
        self.nodes_changed()

    def nodes_changed(self) -> None:
        """Nodes may have changed."""
        for watch in self._node_watches:
            watch.wake()

    def _drop(self, watch: _TaskWatch | _NodeWatch) -> None:
        with self._lock:
            self._watches = tuple(other for other in self._watches if other is not watch)
            self._node_watches = tuple(other for other in self._node_watches if other is not watch)


class _NodeWatch:
    def __init__(self, drop: Callable[[_NodeWatch], None]) -> None:
        self._drop = drop
        self.wake: Callable[[], None] = lambda: None

    def on_ready(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def close(self) -> None:
        self._drop(self)


class _TaskWatch:
    def __init__(self, drop: Callable[[_TaskWatch], None], settle: Callable[[], None]) -> None:
        self._drop = drop
        self._settle = settle
        self._condition = threading.Condition()
        self._tasks: dict[TaskKey, Task] = {}
        self._relist = False
        self._closed = False
        self._wake: Callable[[], None] = lambda: None

    def push(self, tasks: Sequence[Task] | None) -> None:
        """See `Watches.push`; None: see `Watches.missed`."""
        with self._condition:
            if tasks is None:
                self._relist = True
            else:
                self._tasks.update((task.spec.key, task) for task in tasks)
            self._condition.notify_all()
            wake = self._wake
        wake()

    def wait(self, timeout_seconds: float) -> list[Task]:
        self._settle()
        with self._condition:
            self._condition.wait_for(
                lambda: self._tasks or self._relist or self._closed, max(0.0, timeout_seconds)
            )
            tasks, self._tasks = list(self._tasks.values()), {}
        return tasks

    @property
    def relist(self) -> bool:
        with self._condition:
            relist, self._relist = self._relist, False
        return relist

    def on_ready(self, wake: Callable[[], None]) -> None:
        with self._condition:
            self._wake = wake
            ready = bool(self._tasks) or self._relist
        if ready:
            wake()

    def close(self) -> None:
        self._drop(self)
        with self._condition:
            self._closed = True
            self._condition.notify_all()
