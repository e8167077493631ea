"""What goes over an agent's socket: frames, requests, replies, and changes of tasks.

A frame is four bytes of length, most significant first, and a JSON document. A client sends
`Call(id, request)`; the agent answers each with `Answer(id, ...)`, in any order, and sends
`Answer(id=0, changes=...)` to watchers. On one connection a change comes before the answer to
the request that caused it, so a client that folds changes as they come reads its own writes.

Descriptors for `Exec` travel beside the first byte of its frame (SCM_RIGHTS).
"""

from __future__ import annotations

import socket
import struct
from typing import Any, TypeVar

import msgspec

from shoal.cluster.base import NodeState, Refused, StopReason, Task, TaskPhase, TaskState
from shoal.objects import codec
from shoal.objects.errors import ShoalError, Unavailable, by_code
from shoal.objects.meta import Part
from shoal.objects.task import TaskBootstrap, TaskKey, TaskSpec

VERSION = 2
"""Of this protocol: raised when an older side could misread it."""

MAX_FRAME_BYTES = 64 * 1024 * 1024

_LENGTH = struct.Struct(">I")
_READ_BYTES = 256 * 1024

T = TypeVar("T")


class Request(Part, frozen=True, kw_only=True, tag_field="op"):
    """Base of all requests."""


class Hello(Request, frozen=True, kw_only=True, tag="hello"):
    """First on every connection. Answer: `Greeting`."""

    version: int


class Greeting(Part, frozen=True, kw_only=True):
    """The node and the agent that answer."""

    version: int
    node: str
    pid: int
    shoal: str
    """The agent's version of Shoal."""


class Ping(Request, frozen=True, kw_only=True, tag="ping"):
    """Answered once everything before it is."""


class Describe(Request, frozen=True, kw_only=True, tag="node"):
    """Answer: `NodeState`."""


class Watch(Request, frozen=True, kw_only=True, tag="watch"):
    """From now on send changes, all tasks first."""


class Admit(Request, frozen=True, kw_only=True, tag="admit"):
    """Promise room to all of these or to none. Answer: their endpoints, in order."""

    specs: tuple[TaskSpec, ...]


class Release(Request, frozen=True, kw_only=True, tag="release"):
    """Take back what was admitted and never launched."""

    tasks: tuple[TaskKey, ...]


class LaunchTask(Part, frozen=True, kw_only=True):
    """One of `Launch`."""

    task: TaskKey
    bootstrap: TaskBootstrap


class Launch(Request, frozen=True, kw_only=True, tag="launch"):
    """Start admitted tasks; those that were launched before, or are not admitted, stay as they are."""

    tasks: tuple[LaunchTask, ...]


class StopTask(Request, frozen=True, kw_only=True, tag="stop"):
    """See `Cluster.stop`."""

    task: TaskKey
    grace_seconds: float
    reason: StopReason


class Acknowledge(Request, frozen=True, kw_only=True, tag="acknowledge"):
    """See `Cluster.acknowledge`."""

    task: TaskKey


class Measure(Request, frozen=True, kw_only=True, tag="usage"):
    """Answer: `Usage` of each, in order; null for those that are not here."""

    tasks: tuple[TaskKey, ...]


class Exec(Request, frozen=True, kw_only=True, tag="exec"):
    """Run a command beside a task. Three descriptors travel along: its standard streams, or for a
    terminal three times the same. Answered with the exit code when it has ended; it is ended when the
    connection is."""

    task: TaskKey
    command: tuple[str, ...]
    tty: bool = False


class ForgetJob(Request, frozen=True, kw_only=True, tag="forget"):
    """See `Cluster.cleanup_job`."""

    namespace: str
    job_uid: str
    outputs: bool


class ShutDown(Request, frozen=True, kw_only=True, tag="shutdown"):
    """Stop every task, then exit. Answered when the last has ended."""

    grace_seconds: float


AnyRequest = (
    Hello | Ping | Describe | Watch | Admit | Release | Launch | StopTask | Acknowledge | Measure
    | Exec | ForgetJob | ShutDown
)  # fmt: skip


class Call(Part, frozen=True, kw_only=True):
    """A request with the number that its answer will carry; numbers begin at 1."""

    id: int
    request: AnyRequest


class Change(TaskState, frozen=True, kw_only=True):
    """The newest state of a task. `spec` comes with the first change of a task only, `gone` is the
    last: it was acknowledged or released."""

    namespace: str
    name: str
    spec: TaskSpec | None = None
    phase: TaskPhase = "Admitted"
    gone: bool = False

    @property
    def key(self) -> TaskKey:
        """Which task."""
        return TaskKey(namespace=self.namespace, name=self.name)

    def task(self, spec: TaskSpec) -> Task:
        """The task as it is now."""
        return Task(spec=spec, **_state_of(self))


def change_of(task: Task, *, whole: bool) -> Change:
    """The change that makes a mirror show the task as it is; `whole`: with its spec."""
    key, spec = task.spec.key, task.spec if whole else None
    return Change(namespace=key.namespace, name=key.name, spec=spec, **_state_of(task))


def _state_of(held: TaskState) -> dict[str, Any]:
    return {name: getattr(held, name) for name in TaskState.__struct_fields__}


class Answer(Part, frozen=True, kw_only=True):
    """From the agent: a result or an error for one call, or changes (id 0)."""

    id: int = 0
    result: msgspec.Raw = msgspec.Raw()
    error: dict[str, Any] | None = None
    changes: tuple[Change, ...] = ()
    node: NodeState | None = None
    """The node itself, when it changed; to watchers."""


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_partial(self) -> bool:
        """Whether the beginning of a frame has come and its end has not."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The documents that are complete now.

        Raises:
            ValueError: what comes is no frame of this protocol.
        """
        self._buffer += data
        documents: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes is none of this protocol")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            documents.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        return documents


def frame(message: Any) -> bytes:  # Any: a Call or an Answer
    """The message as it goes over the socket."""
    document = codec.encode(message)
    return _LENGTH.pack(len(document)) + document


def answer_error(call: int, error: ShoalError) -> Answer:
    """The answer that raises the same error at the client."""
    return Answer(id=call, error=error.document())


def raise_error(document: dict[str, Any]) -> None:
    """Raise the error that an answer carries.

    Raises:
        ShoalError: always; `Refused` when it was that.
    """
    if document.get("code") == Refused.code:
        details: dict[str, Any] = document.get("details") or {}
        raise Refused(
            str(details.get("node", "")),
            str(details.get("reason", "")),
            str(document.get("message", "")),
        )
    raise by_code(document)


def ask(connection: socket.socket, request: AnyRequest, result: type[T], call: int = 1) -> T:
    """Send one request on a connection of one's own and wait for its answer, no longer than the
    connection's timeout for each part of it.

    Raises:
        ShoalError: what the agent answers.
        Unavailable: it does not answer.
    """
    try:
        connection.sendall(frame(Call(id=call, request=request)))
        frames = Frames()
        while True:
            data = connection.recv(_READ_BYTES)
            if not data:
                raise Unavailable("the node agent closed the connection")
            for document in frames.feed(data):
                answer = codec.decode(document, Answer)
                if answer.id != call:
                    continue
                if answer.error is not None:
                    raise_error(answer.error)
                return codec.decode(bytes(answer.result) or b"null", result)
    except OSError as error:
        raise Unavailable(f"the node agent does not answer: {error}") from error
