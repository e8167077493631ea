"""The Cluster: nodes and the tasks on them. The rules here are the contract.

**Names.** A task's name is unique within its namespace and never used twice: it holds the job's name
and uid, role, index and incarnation (`shoal.objects.task.task_name`). `start` of a name that is there
already changes nothing, so it may be called again and again.

**Groups.** `start` admits all tasks of a group or none. Each node admits against its own ledger
(capacity, device ids, ports) and is the last judge: `Refused` names the node and the reason, and
nothing of the group stays admitted. A crash in the middle leaves tasks `Admitted` at most, which a
repeated `start` carries on and `stop` takes back.

**Ends.** An ended task stays listed, with its outcome, until it is acknowledged; acknowledging one
that still runs, or that is not there, does nothing. The reason of a stop is durable before its signal
is sent, and comes back with the outcome. A second `stop` may shorten the grace, never lengthen it.

**Absence** means something only in a list that says it is complete. A node that does not answer makes
the list incomplete and is named in it.

**Logs** outlive their task and its acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol

from shoal.objects.errors import ShoalError
from shoal.objects.meta import Part, Stamp
from shoal.objects.node import Capacity
from shoal.objects.task import Endpoint, TaskBootstrap, TaskKey, TaskSpec

__all__ = [
    "Cluster",
    "ExecResult",
    "Listing",
    "NodeState",
    "Outcome",
    "Refused",
    "StopReason",
    "Task",
    "Tell",
    "Usage",
]

StopReason = Literal[
    "Cancelled", "Suspended", "Preempted", "Shrunk", "GangRestart", "JobFinished", "WallTime",
    "NodeHours", "IdleTimeout", "NodeDrained", "Deleted", "Refused", "Resized", "Shutdown", "Fenced",
]  # fmt: skip
"""Why the platform ended a task. A task that ended by itself has none."""

EndReason = Literal[
    "Exited", "Signalled", "OutOfMemory", "CommandNotFound", "SupervisorLost", "NodeLost", "StartFailed",
]  # fmt: skip
"""How a task ended: by itself, by a signal, over its memory limit, never started because the command
cannot be run (127 not found, 126 not executable), or through the infrastructure's fault."""

TaskPhase = Literal["Admitted", "Running", "Terminating", "Ended"]


Tell = Callable[[tuple[TaskSpec, ...], tuple[Endpoint, ...]], Mapping[str, TaskBootstrap]]
"""Given the group and the endpoints of its tasks, what each is told, by task name. Pure; called by
`Cluster.start` once the group is admitted and its ports are leased."""


class Outcome(Part, frozen=True, kw_only=True):
    """How a task ended."""

    reason: EndReason
    exit_code: int
    """0 to 255; 128 + signal; -1 when nobody saw it (lost)."""
    signal: int = 0
    stop_reason: StopReason | None = None
    """Why the platform asked it to end, if it did before the end."""
    message: str = ""


class Task(Part, frozen=True, kw_only=True):
    """A task as its node knows it."""

    spec: TaskSpec
    phase: TaskPhase
    endpoint: Endpoint | None = None
    outcome: Outcome | None = None
    stop_reason: StopReason | None = None
    admitted: Stamp = 0.0
    started: Stamp = 0.0
    ended: Stamp = 0.0
    idle_since: Stamp = 0.0
    """Since when it has used less than 1 % of a core; 0: it works."""
    unenforced: tuple[str, ...] = ()
    """Isolations that its node could not give it."""


class NodeState(Part, frozen=True, kw_only=True):
    """A node as the cluster knows it."""

    name: str
    ready: bool
    capacity: Capacity = Capacity()
    address: str = ""
    message: str = ""
    isolations: dict[str, str] = {}
    """Isolation to `enforced` or the reason why not."""
    labels: dict[str, str] = {}
    """Labels that the node declares of itself; people's labels add to them."""
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


class Usage(Part, frozen=True, kw_only=True):
    """What a task has used."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    gpu_ratio: float | None = None


class ExecResult(Part, frozen=True, kw_only=True):
    """How a command run beside a task ended."""

    exit_code: int


class Refused(ShoalError):
    """A node does not admit a task: a placement failure, never the user's fault."""

    code = "PlacementRefused"
    http_status = 409

    def __init__(self, node: str, reason: str, message: str) -> None:
        super().__init__(message, details={"node": node, "reason": reason})
        self.node = node
        self.reason = reason


class TaskWatch(Protocol):
    """Tells that something changed. Not shared between threads."""

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
        ...

    def close(self) -> None:
        """End it; idempotent."""
        ...


class Session(Protocol):
    """A command that runs beside a task (`shoal exec`), in the same isolation."""

    def send(self, data: bytes) -> None:
        """To its standard input; empty closes it."""
        ...

    def receive(self) -> tuple[Literal["out", "err", "exit"], bytes]:
        """The next piece of output; ("exit", b"CODE") is the last."""
        ...

    def resize(self, rows: int, columns: int) -> None:
        """Size of the terminal, if it has one."""
        ...

    def close(self) -> None:
        """End the command if it still runs; idempotent."""
        ...


class Cluster(Protocol):
    """Where tasks run; see the module's docstring for the rules. Thread-safe."""

    def nodes(self) -> tuple[NodeState, ...]:
        """All nodes, ready or not."""
        ...

    def list(self) -> Listing:
        """All tasks that are not yet acknowledged."""
        ...

    def start(self, group: tuple[TaskSpec, ...], tell: Tell) -> None:
        """Admit the whole group and start it; see **Groups**.

        Raises:
            Refused: a node does not admit one of them; none stays admitted.
            Unavailable: a node does not answer; call again.
        """
        ...

    def stop(self, task: TaskKey, *, grace_seconds: float, reason: StopReason) -> None:
        """End the task: SIGTERM, and SIGKILL after the grace. Returns once the reason is durable.

        Nothing happens when it has ended or is not there.
        """
        ...

    def acknowledge(self, task: TaskKey) -> None:
        """Its outcome is recorded: forget the task. Its scratch folder goes."""
        ...

    def watch(self) -> TaskWatch:
        """Tell of changes from now on."""
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

    def usage(self, task: TaskKey) -> Usage:
        """What the task has used so far.

        Raises:
            NotFound: no such task.
        """
        ...

    def cleanup_job(self, namespace: str, job_uid: str, *, outputs: bool) -> None:
        """The job is gone for good, or its clean-up asks for it: remove its shared folders on all
        nodes. `outputs` includes `$SHOAL_OUTPUT`."""
        ...
