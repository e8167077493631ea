"""Sockets that carry frames, in one thread: bounded buffers, and no connection blocks another.

A connection that sends anything but frames is closed, one without a hello after a while, and one that
does not read when too much has gathered for it.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from shoal.elastic import wire

__all__ = ["Server"]

_LENGTH = struct.Struct(">I")
_CHUNK = 1 << 16
_MAX_CONNECTIONS = 2048
_MAX_UNREAD_BYTES = 8 << 20
_HELLO_SECONDS = 5.0
_BACKLOG = 512
_READS_AT_ONCE = 16


@dataclass
class _End:
    """One connection. `greeted`: its hello was right."""

    number: int
    sock: socket.socket
    since: float
    greeted: bool = False
    closing: bool = False
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    skip: int = 0


class Server:
    """Not thread-safe but for `wake`. `on_message(number, message)` may raise ValueError: the connection
    is closed. `on_dropped(number)` is called for each connection that had greeted."""

    def __init__(
        self,
        host: str,
        port: int,
        on_message: Callable[[int, wire.Message], None],
        on_dropped: Callable[[int], None],
        max_connections: int = _MAX_CONNECTIONS,
    ) -> None:
        """Bind and listen.

        Raises:
            OSError: the address cannot be had.
        """
        self._on_message = on_message
        self._on_dropped = on_dropped
        self._max = max_connections
        self._selector = selectors.DefaultSelector()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._wake_read)
        self._ends: dict[int, _End] = {}
        self._next = 1
        self._strangers: dict[int, _End] = {}

    @property
    def address(self) -> str:
        """`host:port` as bound."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def greet(self, number: int) -> None:
        """The connection has sent its hello, and may stay."""
        self._ends[number].greeted = True
        self._strangers.pop(number, None)

    def wake(self) -> None:
        """Make `serve` return soon. From any thread."""
        with contextlib.suppress(BlockingIOError):  # it is awake already
            self._wake_write.send(b"\0")

    def send(self, number: int, message: wire.Message) -> None:
        """Give a frame to a connection; it goes as the other end reads. Nothing for one that is gone."""
        end = self._ends.get(number)
        if end is None or end.closing:
            return
        end.outgoing += wire.encode(message)
        if len(end.outgoing) > _MAX_UNREAD_BYTES:
            # Reset, so that the kernel keeps nothing for it either, and it learns of it at once.
            end.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._drop(end)
            return
        self._flush(end)

    def close(self, number: int) -> None:
        """Close a connection once it has read what was sent; what it sends is ignored."""
        end = self._ends.get(number)
        if end is None:
            return
        end.closing = True
        end.since = float("-inf")
        self._flush(end)

    def serve(self, now: float, timeout_seconds: float | None) -> None:
        """Wait for something to happen, and handle all that has. `now` is monotonic seconds."""
        for stranger in [end for end in self._strangers.values() if now - end.since > _HELLO_SECONDS]:
            self._drop(stranger)
        if self._strangers:
            timeout_seconds = min(timeout_seconds if timeout_seconds is not None else 1.0, 1.0)
        for key, mask in self._selector.select(timeout_seconds):
            if key.data is None:
                self._accept(now)
            elif key.data is self._wake_read:
                with contextlib.suppress(BlockingIOError):
                    while self._wake_read.recv(_CHUNK):
                        pass
            else:
                self._ready(cast("_End", key.data), mask)

    @property
    def unsent(self) -> bool:
        """Whether a connection has not read all that was sent."""
        return any(end.outgoing for end in self._ends.values())

    def shut(self) -> None:
        """Close everything."""
        for end in list(self._ends.values()):
            end.sock.close()
        self._ends.clear()
        self._strangers.clear()
        self._selector.close()
        for sock in (self._listener, self._wake_read, self._wake_write):
            sock.close()

    def _accept(self, now: float) -> None:
        for _ in range(_BACKLOG):
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of descriptors: a stranger makes room, or the next round tries again.
                self._make_room()
                return
            if len(self._ends) >= self._max and not self._make_room():
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(sock)
            end = _End(self._next, sock, now)
            self._next += 1
            self._ends[end.number] = end
            self._strangers[end.number] = end
            self._selector.register(sock, selectors.EVENT_READ, end)

    def _make_room(self) -> bool:
        """Close the oldest connection without a hello: a flood shuts out no member."""
        oldest = next(iter(self._strangers.values()), None)
        if oldest is None:
            return False
        self._drop(oldest)
        return True

    def _ready(self, end: _End, mask: int) -> None:
        if mask & selectors.EVENT_WRITE and end.number in self._ends:
            self._flush(end)
        if mask & selectors.EVENT_READ and end.number in self._ends:
            self._read(end)

    def _read(self, end: _End) -> None:
        # A bound on what is read at once, so that one that sends without end does not starve others.
        for _ in range(_READS_AT_ONCE):
            try:
                data = end.sock.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(end)
                return
            if end.closing:
                continue
            end.incoming += data
            try:
                self._frames(end)
            except (ValueError, RecursionError, wire.Garbled):
                self._drop(end)
                return
            if end.number not in self._ends or len(data) < _CHUNK:
                return

    def _frames(self, end: _End) -> None:
        while not end.closing and end.number in self._ends:
            skipped = min(end.skip, len(end.incoming))
            del end.incoming[:skipped]
            end.skip -= skipped
            if end.skip or len(end.incoming) < _LENGTH.size:
                return
            (length,) = _LENGTH.unpack_from(end.incoming)
            if length > wire.MAX_TEXT_BYTES:
                raise wire.Garbled(f"a frame of {length} bytes")
            whole = _LENGTH.size + length
            if len(end.incoming) < whole:
                return
            message = _decoded(bytes(end.incoming[_LENGTH.size : whole]))
            del end.incoming[:whole]
            following = message.get("bytes", 0)
            if not isinstance(following, int) or not 0 <= following <= wire.MAX_TEXT_BYTES:
                raise wire.Garbled("no message to a coordinator is followed by so many bytes")
            end.skip = following
            self._on_message(end.number, message)

    def _flush(self, end: _End) -> None:
        while end.outgoing:
            try:
                sent = end.sock.send(end.outgoing)
            except BlockingIOError:
                break
            except OSError:
                self._drop(end)
                return
            del end.outgoing[:sent]
        if end.closing and not end.outgoing:
            self._drop(end)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if end.outgoing else 0)
        if self._selector.get_key(end.sock).events != wanted:
            self._selector.modify(end.sock, wanted, end)

    def _drop(self, end: _End) -> None:
        if self._ends.pop(end.number, None) is None:
            return
        self._strangers.pop(end.number, None)
        self._selector.unregister(end.sock)
        end.sock.close()
        if end.greeted:
            self._on_dropped(end.number)


def _keep_alive(sock: socket.socket) -> None:
    """A machine that is gone without a word closes its connections after half a minute."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _decoded(text: bytes) -> wire.Message:
    decoded: object = json.loads(text)
    message = cast("wire.Message", decoded) if isinstance(decoded, dict) else {}
    if not isinstance(message.get("type"), str):
        raise wire.Garbled("a frame without a type")
    return message
