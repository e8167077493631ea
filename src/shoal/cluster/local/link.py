"""The server's connection to one agent, with a mirror of that agent's tasks.

A thread keeps the connection: it connects again by itself, reads answers and changes, and folds the
changes into the mirror in the order in which they come. Since an answer comes after the changes that
its request caused, and `barrier` is such an answer, a mirror looked at after a barrier is the agent's
own list of that moment, without the cost of sending it.

While the agent does not answer, the mirror keeps the last that was known, to tell where a task is;
it is not shown to anybody as the present.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from shoal.background import Backoff, SupervisedThread
from shoal.cluster.base import NodeState, Task
from shoal.cluster.local import home, protocol
from shoal.cluster.local.protocol import Answer, AnyRequest, Call, Frames, frame, raise_error
from shoal.objects import codec
from shoal.objects.errors import ShoalError, Unavailable
from shoal.objects.task import TaskKey, TaskSpec

__all__ = ["Link", "Pending"]

REQUEST_SECONDS = 10.0
"""How long an agent may take for one request."""
PATIENCE_SECONDS = 2.0
"""How long a request waits for an agent that was there a moment ago."""
OVERDUE_SECONDS = 1.0
"""A node that has not answered a barrier for so long is silent."""

_FIRST_RETRY_SECONDS = 0.01
_LONGEST_RETRY_SECONDS = 0.25
_READ_BYTES = 256 * 1024

T = TypeVar("T")


class Pending:
    """A request on its way."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._asked = time.monotonic()
        self._done = threading.Event()
        self._answer: Answer | None = None

    def settle(self, answer: Answer | None) -> None:
        """Its answer; None when the connection is lost."""
        self._answer = answer
        self._done.set()

    @property
    def done(self) -> bool:
        """True when it is answered, or never will be."""
        return self._done.is_set()

    @property
    def overdue(self) -> bool:
        """True when its answer should have come and has not."""
        return not self.done and time.monotonic() - self._asked > OVERDUE_SECONDS

    def wait(self, timeout_seconds: float) -> bool:
        """True when it was answered in time."""
        return self._done.wait(timeout_seconds) and self._answer is not None

    def result(self, kind: type[T], timeout_seconds: float = REQUEST_SECONDS) -> T:
        """What the agent answers.

        Raises:
            Unavailable: nothing, within the timeout.
            ShoalError: the error that it answers.
        """
        if not self.wait(timeout_seconds) or self._answer is None:
            raise _silent(self._node)
        if self._answer.error is not None:
            raise_error(self._answer.error)
        return codec.decode(bytes(self._answer.result) or b"null", kind)


class Link:
    """See the module's docstring. Thread-safe. `told` is called with tasks that changed, and with
    None when changes may have been missed; from the link's thread, and it must not block."""

    def __init__(self, node: str, path: Path, told: Callable[[list[Task] | None], None]) -> None:
        self.node = node
        self.message = ""
        """Why the node is not ready."""
        self._path = path
        self._told = told
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._connection: socket.socket | None = None
        self._pending: dict[int, Pending] = {}
        self._calls = 0
        self._tasks: dict[TaskKey, Task] = {}
        self._shown: tuple[Task, ...] | None = None
        self._state: NodeState | None = None
        self._ready = threading.Event()
        self._down_since = time.monotonic()
        self._probe: Pending | None = None
        self._closing = threading.Event()
        self._thread = SupervisedThread(
            f"link-{node}", self._run, self._closing, backoff=Backoff(0.01, 2.0)
        )
        self._thread.start()

    @property
    def state(self) -> NodeState | None:
        """The node as its agent describes it; None while it does not answer."""
        return self._state if self._ready.is_set() and self._answers() else None

    def submit(self, request: AnyRequest) -> Pending:
        """Send a request.

        Raises:
            Unavailable: there is nobody to send it to.
        """
        if not self._ready.is_set():
            patience = PATIENCE_SECONDS - (time.monotonic() - self._down_since)
            if patience <= 0 or not self._ready.wait(patience):
                raise _silent(self.node, self.message)
        if not self._answers():
            raise _silent(self.node)
        return self._submit(request)

    def ping(self) -> Pending | None:
        """Begin a barrier; None when the node is known not to answer."""
        if not self._ready.is_set() or not self._answers():
            return None
        try:
            probe = self._submit(protocol.Ping())
        except Unavailable:
            return None
        if self._probe is None or self._probe.done:
            self._probe = probe  # the oldest that is not answered tells how long it has been silent
        return probe

    def look(self) -> None:
        """Begin a barrier for its own sake, unless one is under way: `state` tells how it went."""
        if self._probe is None or self._probe.done:
            self.ping()

    def tasks(self) -> tuple[Task, ...]:
        """The mirror: as the agent had it at the last barrier, or later."""
        with self._lock:
            if self._shown is None:
                self._shown = tuple(self._tasks.values())
            return self._shown

    def find(self, key: TaskKey) -> Task | None:
        """One task, as last known."""
        with self._lock:
            return self._tasks.get(key)

    def close(self) -> None:
        """End the connection and its thread; idempotent."""
        self._closing.set()
        self._drop()
        if self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _answers(self) -> bool:
        """False once a barrier is overdue, until its answer comes after all."""
        probe = self._probe
        return probe is None or not probe.overdue

    def _submit(self, request: AnyRequest) -> Pending:
        pending = Pending(self.node)
        with self._lock:
            self._calls += 1
            number = self._calls
            self._pending[number] = pending
        try:
            self._send(frame(Call(id=number, request=request)))
        except OSError as error:
            with self._lock:
                self._pending.pop(number, None)
            self._drop()
            raise _silent(self.node, str(error)) from error
        return pending

    def _send(self, data: bytes) -> None:
        """Raises:
        OSError: the connection is lost, or takes no more; then part of a frame may have been sent,
            and the connection is of no more use.
        """
        deadline = time.monotonic() + REQUEST_SECONDS
        with self._sending:
            connection = self._connection
            if connection is None:
                raise ConnectionError("not connected")
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[connection.send(rest, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    patience = deadline - time.monotonic()
                    poll = select.poll()
                    poll.register(connection, select.POLLOUT)
                    if patience <= 0 or not poll.poll(patience * 1000):
                        raise TimeoutError("it takes no more requests") from None

    def _run(self) -> None:
        retry = _FIRST_RETRY_SECONDS
        while not self._closing.is_set():
            try:
                self._follow()
            except (FileNotFoundError, ConnectionRefusedError):
                self.message = "its agent is not up"
            except (OSError, ShoalError, ValueError, msgspec.MsgspecError) as error:
                self.message = str(error)
            finally:  # also before an exception that nothing here expects restarts the loop
                was_ready = self._ready.is_set()
                self._lost()
            retry = _FIRST_RETRY_SECONDS if was_ready else min(retry * 1.5, _LONGEST_RETRY_SECONDS)
            self._closing.wait(retry)

    def _follow(self) -> None:
        """Connect, and read until the connection ends.

        Raises:
            OSError: it did.
        """
        connection = home.connect(self._path, REQUEST_SECONDS)
        try:
            protocol.ask(connection, protocol.Hello(version=protocol.VERSION), protocol.Greeting)
            connection.settimeout(None)
            with self._lock:
                self._connection = connection
                self._state = None
                self._tasks.clear()
                self._shown = None
            opening = self._submit(protocol.Describe()), self._submit(protocol.Watch())
            frames = Frames()
            while data := connection.recv(_READ_BYTES):
                for document in frames.feed(data):
                    self._take(codec.decode(document, Answer))
                if not self._ready.is_set() and all(pending.done for pending in opening):
                    self._state = self._state or opening[0].result(NodeState)
                    self.message = ""
                    self._ready.set()
                    self._told(None)
            raise ConnectionError("the node agent has ended")
        finally:
            self._drop()
            connection.close()

    def _take(self, answer: Answer) -> None:
        if answer.changes:
            changed = self._fold(answer.changes)
            if self._ready.is_set() and changed:
                self._told(changed)
        if answer.node is not None:
            self._state = answer.node
        if answer.id:
            with self._lock:
                pending = self._pending.pop(answer.id, None)
            if pending is not None:
                pending.settle(answer)

    def _fold(self, changes: Iterable[protocol.Change]) -> list[Task]:
        changed: list[Task] = []
        with self._lock:
            for change in changes:
                if change.gone:
                    self._tasks.pop(change.key, None)
                    continue
                task = change.task(self._spec(change))
                self._tasks[change.key] = task
                changed.append(task)
            self._shown = None
        return changed

    def _spec(self, change: protocol.Change) -> TaskSpec:
        """Raises:
        ValueError: the agent tells of a task that it never told of before.
        """
        if change.spec is not None:
            return change.spec
        known = self._tasks.get(change.key)
        if known is None:
            raise ValueError(f"the agent of node {self.node} changes unknown task {change.name}")
        return known.spec

    def _drop(self) -> None:
        """Have the thread notice that the connection is of no more use."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _lost(self) -> None:
        if self._ready.is_set():
            self._down_since = time.monotonic()
            self._ready.clear()
            self._told(None)
        with self._lock:
            pending, self._pending = self._pending, {}
        self._probe = None
        for one in pending.values():
            one.settle(None)


def _silent(node: str, why: str = "") -> Unavailable:
    return Unavailable(f"node {node} does not answer{': ' + why if why else ''}")
