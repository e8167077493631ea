"""The agent's sockets: clients come and go, their frames are cut and answered, watchers are notified.

Only the owner of the home gets through the socket's folder and mode; tasks, which have the owner's
user id, are recognised by their ancestry and turned away. A client that sends what is no frame,
takes too long to send one, or does not read what it is sent, is dropped; it connects again and asks
anew.
"""

from __future__ import annotations

import array
import os
import selectors
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from shoal.cluster.base import NodeState
from shoal.cluster.local.loop import Loop, Timer
from shoal.cluster.local.protocol import Answer, Call, Change, Frames, answer_error, frame
from shoal.objects import codec
from shoal.objects.errors import ShoalError

MAX_UNREAD_BYTES = 64 * 1024 * 1024
_READ_BYTES = 256 * 1024
_MAX_DESCRIPTORS = 8
_MAX_CLIENTS = 1024
_FRAME_SECONDS = 20.0
"""For a client's first frame from its connection, and for each later one from its first byte."""


class Client:
    """One connection. Belongs to the loop's thread."""

    def __init__(self, serving: Serving, connection: socket.socket) -> None:
        self.watching = False
        self.on_close: list[Callable[[], None]] = []
        self._serving = serving
        self._connection = connection
        self._frames = Frames()
        self._unsent = bytearray()
        self._descriptors: list[int] = []
        self._closed = False
        self._deadline: Timer | None = None
        connection.setblocking(False)
        serving.loop.add(connection.fileno(), selectors.EVENT_READ, self._ready)
        self._await_frame(expected=True)

    def answer(self, call: int, result: Any = None) -> None:  # Any: what the request's docs say
        """The result of a call."""
        raw = msgspec.Raw(codec.encode(result)) if result is not None else msgspec.Raw()
        self.send(frame(Answer(id=call, result=raw)))

    def fail(self, call: int, error: ShoalError) -> None:
        """The call raises this."""
        self.send(frame(answer_error(call, error)))

    def take_descriptors(self, count: int) -> list[int]:
        """Descriptors that came with the request, the caller's to close; fewer if fewer came."""
        taken, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        return taken

    def send(self, data: bytes) -> None:
        """Send it now, or as the client reads."""
        if self._closed:
            return
        if not self._unsent:
            try:
                data = data[self._connection.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                return
        if data:
            self._unsent += data
            if len(self._unsent) > MAX_UNREAD_BYTES:
                self.close()
                return
            self._watch_socket()

    def close(self) -> None:
        """End the connection and what belongs to it; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._await_frame(expected=False)
        self._serving.loop.remove(self._connection.fileno())
        self._connection.close()
        self._serving.clients.discard(self)
        for descriptor in self._descriptors:
            os.close(descriptor)
        for callback in self.on_close:
            callback()

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ and not self._closed:
            self._read()

    def _flush(self) -> None:
        try:
            del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not self._unsent:
            self._watch_socket()

    def _watch_socket(self) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._serving.loop.add(self._connection.fileno(), events, self._ready)

    def _read(self) -> None:
        try:
            data = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            documents = self._frames.feed(data)
            if documents:
                self._await_frame(expected=False)
            if self._frames.is_partial and self._deadline is None:
                self._await_frame(expected=True)
            for document in documents:
                self._serving.handle(self, codec.decode(document, Call))
        except (ValueError, msgspec.MsgspecError) as error:
            self._serving.report(f"a client was dropped: {error}")
            self.close()

    def _await_frame(self, *, expected: bool) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._serving.loop.later(_FRAME_SECONDS, self._too_slow) if expected else None

    def _too_slow(self) -> None:
        self._serving.report(f"a client was dropped: no whole request came within {_FRAME_SECONDS:g} s")
        self.close()

    def _receive(self) -> bytes:
        space = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        data, ancillary, _, _ = self._connection.recvmsg(_READ_BYTES, space, flags)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors = array.array("i")
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
                self._descriptors += list(descriptors)
        return data


class Serving:
    """The listening socket and its clients. `handle` is given each call. `welcome` decides, by the pid
    and uid that the kernel gives, whether a client is served at all."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        handle: Callable[[Client, Call], None],
        report: Callable[[str], None],
        welcome: Callable[[int, int], bool],
    ) -> None:
        self.loop = loop
        self.handle = handle
        self.report = report
        self.clients: set[Client] = set()
        self._welcome = welcome
        self._listener = listener
        listener.setblocking(False)
        loop.add(listener.fileno(), selectors.EVENT_READ, self._accept)

    def send_changes(self, changes: tuple[Change, ...]) -> None:
        """Send changes of tasks to all watchers."""
        self._send(Answer(changes=changes))

    def send_state(self, state: NodeState) -> None:
        """Send the node's new state to all watchers."""
        self._send(Answer(node=state))

    def _send(self, answer: Answer) -> None:
        watchers = [client for client in self.clients if client.watching]
        if watchers:
            data = frame(answer)
            for client in watchers:
                client.send(data)

    def listen(self, listener: socket.socket) -> None:
        """Accept clients here, and no longer where it was; those that are connected stay."""
        self._stop_listening()
        self._listener = listener
        listener.setblocking(False)
        self.loop.add(listener.fileno(), selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Drop all clients and listen no more."""
        for client in list(self.clients):
            client.close()
        self._stop_listening()

    def _stop_listening(self) -> None:
        self.loop.remove(self._listener.fileno())
        self._listener.close()

    def _accept(self, _: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        if len(self.clients) >= _MAX_CLIENTS:
            self.report(f"a client was turned away: {_MAX_CLIENTS} are connected")
            connection.close()
            return
        pid, uid = _credentials(connection)
        if self._welcome(pid, uid):
            self.clients.add(Client(self, connection))
        else:
            self.report(f"process {pid} of user {uid} was turned away")
            connection.close()


def _credentials(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the other end when it connected; our own where the kernel does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return os.getpid(), os.geteuid()
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid
