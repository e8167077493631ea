"""`exec`: a command beside a task, its streams in our hands.

The descriptors of its streams go to the agent, which gives them to the command and stays out of the
way: what is typed and printed never passes through it. The connection over which they went stays open
for as long as the command may run; when it closes, the agent ends the command.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import socket
import struct
import termios
import threading
import time
from collections import deque
from pathlib import Path
from typing import Literal

from shoal.cluster.local import home, protocol
from shoal.cluster.local.protocol import Answer, Call, Frames, frame, raise_error
from shoal.objects import codec
from shoal.objects.errors import Unavailable
from shoal.objects.task import TaskKey

ANSWER_SECONDS = 10.0
DRAIN_SECONDS = 0.2
"""After the command has ended, output of what it left running is waited for no longer."""
LOST_EXIT_CODE = 255

_CALL = 2
_READ_BYTES = 64 * 1024

Stream = Literal["out", "err"]


def open_session(path: Path, task: TaskKey, command: tuple[str, ...], tty: bool) -> LocalSession:
    """Run the command beside the task; its agent listens at `path`.

    Raises:
        NotFound: the task does not run.
        Unavailable: the agent does not answer.
    """
    try:
        connection = home.connect(path, ANSWER_SECONDS)
    except OSError as error:
        raise Unavailable(f"the node agent does not answer: {error}") from error
    session: LocalSession | None = None
    try:
        protocol.ask(connection, protocol.Hello(version=protocol.VERSION), protocol.Greeting)
        session = _terminal(connection) if tty else _pipes(connection)
        session.begin(protocol.Exec(task=task, command=command, tty=tty))
    except BaseException:
        connection.close()
        if session is not None:
            session.close()
        raise
    return session


class LocalSession:
    """See `shoal.cluster.base.Session`. One thread may send while another receives, and a third may
    close it: a descriptor is never closed under a thread that waits on it."""

    def __init__(
        self,
        connection: socket.socket,
        ours: tuple[int, dict[int, Stream]],
        theirs: tuple[int, int, int],
    ) -> None:
        self._connection = connection
        self._input, self._outputs = ours
        self._theirs = theirs
        self._frames = Frames()
        self._answers: deque[Answer] = deque()
        self._exit: int | None = None
        self._ended_at = 0.0
        self._closed = False
        self._sending = threading.Lock()
        self._receiving = threading.Lock()

    def begin(self, request: protocol.Exec) -> None:
        """Hand the streams over and have the command started.

        Raises:
            NotFound: the task does not run.
            Unavailable: the agent does not answer.
        """
        data = frame(Call(id=_CALL, request=request))
        descriptors = array.array("i", self._theirs)
        try:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            sent = self._connection.sendmsg([data], ancillary)
            self._connection.sendall(data[sent:])
            while not self._answers:
                received = self._connection.recv(_READ_BYTES)
                if not received:
                    raise Unavailable("the node agent closed the connection")
                self._take(received)
        except OSError as error:
            raise Unavailable(f"the node agent does not answer: {error}") from error
        finally:
            for descriptor in set(self._theirs):
                os.close(descriptor)
            self._theirs = (-1, -1, -1)
        answer = self._answers.popleft()
        if answer.error is not None:
            raise_error(answer.error)

    def send(self, data: bytes) -> None:
        with self._sending:
            self._send(data)

    def receive(self) -> tuple[Literal["out", "err", "exit"], bytes]:
        with self._receiving:
            return self._receive()

    def resize(self, rows: int, columns: int) -> None:
        if self._input in self._outputs:
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes the receiver, and ends the command
        with self._receiving, self._sending:
            self._connection.close()
            for descriptor in {self._input, *self._outputs, *self._theirs} - {-1}:
                os.close(descriptor)
            self._outputs.clear()
            self._input = -1

    def _send(self, data: bytes) -> None:
        if self._input < 0:
            return
        if not data:
            if self._input in self._outputs:
                os.write(self._input, b"\x04")  # a terminal's end of input
            else:
                os.close(self._input)
                self._input = -1
            return
        # the command reads no more: a closed pipe, or a terminal that no process has open
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._input, data) :]

    def _receive(self) -> tuple[Literal["out", "err", "exit"], bytes]:
        while True:
            if self._closed:
                return "exit", str(LOST_EXIT_CODE).encode()
            if self._answers and self._exit is None:
                ended = bytes(self._answers.popleft().result)
                self._exit = codec.decode(ended, int) if ended else LOST_EXIT_CODE
                self._ended_at = time.monotonic()
            if self._exit is not None and self._drained():
                return "exit", str(self._exit).encode()
            poll = select.poll()
            for descriptor in self._outputs:
                poll.register(descriptor, select.POLLIN)
            if self._exit is None:
                poll.register(self._connection, select.POLLIN)
            patience = None if self._exit is None else DRAIN_SECONDS * 1000
            ready = [descriptor for descriptor, _ in poll.poll(patience)]
            for descriptor in sorted(set(ready) & self._outputs.keys()):
                piece = self._read(descriptor)
                if piece:
                    return piece
            if self._connection.fileno() in ready:
                self._hear()

    def _drained(self) -> bool:
        return not self._outputs or time.monotonic() - self._ended_at > DRAIN_SECONDS

    def _read(self, descriptor: int) -> tuple[Stream, bytes] | None:
        name = self._outputs[descriptor]
        try:
            data = os.read(descriptor, _READ_BYTES)
        except OSError:  # a terminal that no process has open any more
            data = b""
        if data:
            self._ended_at = time.monotonic()
            return name, data
        del self._outputs[descriptor]
        if descriptor == self._input:
            self._input = -1
        os.close(descriptor)
        return None

    def _hear(self) -> None:
        """The command has ended, or its agent has."""
        try:
            data = self._connection.recv(_READ_BYTES)
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self._answers.append(Answer())

    def _take(self, data: bytes) -> None:
        for document in self._frames.feed(data):
            self._answers.append(codec.decode(document, Answer))


def _pipes(connection: socket.socket) -> LocalSession:
    pairs = [os.pipe() for _ in range(3)]
    (stdin, our_in), (our_out, stdout), (our_err, stderr) = pairs
    ours: dict[int, Stream] = {our_out: "out", our_err: "err"}
    return LocalSession(connection, (our_in, ours), (stdin, stdout, stderr))


def _terminal(connection: socket.socket) -> LocalSession:
    master, slave = os.openpty()
    return LocalSession(connection, (master, {master: "out"}), (slave, slave, slave))
