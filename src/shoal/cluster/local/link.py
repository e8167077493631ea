"""The server's connection to one agent, with a mirror of that agent's tasks.

A thread keeps the connection: it connects again by itself, sends what the socket did not take at once,
reads answers and changes, and folds the changes into the mirror in the order in which they come. No
caller of `post` waits for the agent. Every second the thread begins a barrier, so that an agent that
stands still is noticed while nothing is asked of it. Since an answer comes after the changes that
its request caused, and `barrier` is such an answer, a mirror looked at after a barrier is the agent's
own list of that moment, without the cost of sending it.

While the agent does not answer, the mirror keeps the last that was known, to say where a task is;
it is not shown as the present.
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

REQUEST_SECONDS = 10.0
"""How long an agent may take for one request."""
OVERDUE_SECONDS = 1.0
"""A node that has not answered a barrier for so long is silent."""

MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Requests of so much that the agent does not read end the connection."""

_BEAT_SECONDS = 0.5
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
        self._lock = threading.Lock()
        self._callback: Callable[[Pending], None] | None = None

    def settle(self, answer: Answer | None) -> None:
        """Its answer; None when the connection is lost."""
        with self._lock:
            self._answer = answer
            self._done.set()
            callback = self._callback
        if callback is not None:
            callback(self)

    def then(self, callback: Callable[[Pending], None]) -> None:
        """Call `callback` once `done`; from the connection's thread, so it must not block."""
        with self._lock:
            self._callback = callback
            done = self._done.is_set()
        if done:
            callback(self)

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
    """See the module's docstring. Thread-safe. `changed` is called with tasks that changed, and with
    None when changes may have been missed or the agent begins or ceases to answer; `beat` is called
    twice a second. Both from the link's thread, and they must not block."""

    def __init__(
        self,
        node: str,
        path: Path,
        changed: Callable[[list[Task] | None], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.node = node
        self.message = ""
        """Why the node is not ready."""
        self._path = path
        self._changed = changed
        self._beat = beat
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._connection: socket.socket | None = None
        self._pending: dict[int, Pending] = {}
        self._calls = 0
        self._tasks: dict[TaskKey, Task] = {}
        self._shown: tuple[Task, ...] | None = None
        self._state: NodeState | None = None
        self._ready = threading.Event()
        self._probe: Pending | None = None
        self._probed_at = 0.0
        self._answered = True
        self._unsent = bytearray()
        self._waker, self._woken = socket.socketpair()
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._closing = threading.Event()
        self._thread = SupervisedThread(
            f"link-{node}", self._run, self._closing, backoff=Backoff(0.01, 2.0)
        )
        self._thread.start()

    @property
    def state(self) -> NodeState | None:
        """The node as its agent describes it; None while it does not answer."""
        return self._state if self.answering else None

    @property
    def answering(self) -> bool:
        """False when it is known that the agent does not answer now."""
        return self._ready.is_set() and self._answers()

    def post(self, request: AnyRequest) -> Pending:
        """Send a request without waiting for anything.

        Raises:
            Unavailable: the agent is known not to answer.
        """
        if not self.answering:
            raise _silent(self.node, self.message)
        return self._submit(request)

    def ping(self) -> Pending | None:
        """Begin a barrier; None when the node is known not to answer."""
        if not self.answering:
            return None
        try:
            probe = self._submit(protocol.Ping())
        except Unavailable:
            return None
        if self._probe is None or self._probe.done:
            self._probe = probe  # the oldest unanswered one says for how long it has been silent
        return probe

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
        self._wake()
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
        """Send now what the socket takes, the rest by the link's thread.

        Raises:
            OSError: the connection is lost, or too much is unsent.
        """
        with self._sending:
            connection = self._connection
            if connection is None:
                raise ConnectionError("not connected")
            if not self._unsent:
                with contextlib.suppress(BlockingIOError):
                    data = data[connection.send(data, socket.MSG_DONTWAIT) :]
            self._unsent += data
            if len(self._unsent) > MAX_UNSENT_BYTES:
                raise ConnectionError("it takes no more requests")
            unsent = bool(self._unsent)
        if unsent:
            self._wake()

    def _flush(self, connection: socket.socket) -> None:
        with self._sending, contextlib.suppress(BlockingIOError):
            while self._unsent:
                sent = connection.send(self._unsent[:_READ_BYTES], socket.MSG_DONTWAIT)
                del self._unsent[:sent]

    def _wake(self) -> None:
        """Have the thread look again at what is unsent, and at `_closing`."""
        with contextlib.suppress(OSError):  # full: it is awake anyway
            self._waker.send(b"x")

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
            self._beat()
        self._waker.close()
        self._woken.close()

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
            while not self._closing.is_set():
                data = self._next_bytes(connection)
                for document in frames.feed(data):
                    self._take(codec.decode(document, Answer))
                if not self._ready.is_set() and all(pending.done for pending in opening):
                    self._state = self._state or opening[0].result(NodeState)
                    self.message = ""
                    self._answered = True
                    self._ready.set()
                    self._changed(None)
                self._probe_regularly()
        finally:
            self._drop()
            connection.close()

    def _next_bytes(self, connection: socket.socket) -> bytes:
        """What has come, nothing when a beat has passed; sends what is unsent.

        Raises:
            OSError: the connection has ended.
        """
        poll = select.poll()
        poll.register(connection, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        poll.register(self._woken, select.POLLIN)
        for descriptor, events in poll.poll(_BEAT_SECONDS * 1000):
            if descriptor == self._woken.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(_READ_BYTES)
            elif events & ~select.POLLOUT:
                data = connection.recv(_READ_BYTES)
                if not data:
                    raise ConnectionError("the node agent has ended")
                return data
        self._flush(connection)
        return b""

    def _probe_regularly(self) -> None:
        now = time.monotonic()
        if now - self._probed_at < _BEAT_SECONDS or not self._ready.is_set():
            return
        self._probed_at = now
        if self._answers() != self._answered:
            self._answered = not self._answered
            self._changed(None)
        if self._probe is None or self._probe.done:
            self.ping()
        self._beat()

    def _take(self, answer: Answer) -> None:
        if answer.changes:
            changed = self._fold(answer.changes)
            if self._ready.is_set() and changed:
                self._changed(changed)
        if answer.node is not None:
            self._state = answer.node
            if self._ready.is_set():
                self._changed(None)
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
        ValueError: the agent changes a task that it never listed.
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
            self._ready.clear()
            self._changed(None)
        with self._lock:
            pending, self._pending = self._pending, {}
        with self._sending:
            self._unsent.clear()
        self._probe = None
        for one in pending.values():
            one.settle(None)


def _silent(node: str, why: str = "") -> Unavailable:
    return Unavailable(f"node {node} does not answer{': ' + why if why else ''}")
