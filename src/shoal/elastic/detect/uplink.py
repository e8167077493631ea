"""The sidecar's connection to the coordinator: never blocks, comes back by itself.

The owner polls `descriptor` for `interest` and calls `turn` when it is ready or `next_at` has come. A
connection that breaks is made again after a short pause, to wherever `find` then says, and `opened` is
called for what must be said first. The coordinator's few messages go to a callback.
"""

from __future__ import annotations

import contextlib
import errno
import json
import select
import socket
from collections.abc import Callable

from shoal.elastic.wire import MAX_TEXT_BYTES, Message, address_of, encode

__all__ = ["Uplink"]

_PAUSES_SECONDS = (0.02, 0.05, 0.1, 0.2)
_CONNECT_SECONDS = 1.0
_SILENT_PEER_MS = 5000
"""After that long without an acknowledgement from its kernel the coordinator's machine is not there."""
_BACKLOG_BYTES = 64 * 1024
_STEADY_SECONDS = 1.0
"""A connection that lasts less counts as a failure: the other side closes it at once (another key)."""


class Uplink:
    """At most one connection at a time. One thread only.

    `find` says where the coordinator is now (None: not known yet) and must return at once. `opened` is
    called whenever a connection has been made.
    """

    def __init__(
        self,
        find: Callable[[], str | None],
        opened: Callable[[], None],
        heard: Callable[[Message], None],
    ) -> None:
        self._find = find
        self._opened = opened
        self._heard = heard
        self._socket: socket.socket | None = None
        self._connecting = False
        self._finished = False
        self._pending = bytearray()
        self._incoming = bytearray()
        self._failures = 0
        self._faulty = False
        self._since = 0.0
        self.broken = False
        """The last connection ended with an error (and not because the other side closed it)."""
        self.next_at: float | None = 0.0
        """When (monotonic) `turn` must be called though nothing is ready; None: never."""

    @property
    def connected(self) -> bool:
        """Messages reach the other side's kernel."""
        return self._socket is not None and not self._connecting

    @property
    def host(self) -> str:
        """This machine's address on the way to the coordinator; only while connected."""
        assert self._socket is not None
        return str(self._socket.getsockname()[0])

    @property
    def drained(self) -> bool:
        """All that was said has been given to the system."""
        return not self._pending

    @property
    def descriptor(self) -> int | None:
        """What to poll; None while there is no connection."""
        return None if self._socket is None else self._socket.fileno()

    @property
    def interest(self) -> int:
        """For what to poll it."""
        return (
            select.POLLOUT if self._connecting else select.POLLIN | select.POLLOUT * bool(self._pending)
        )

    def send(self, message: Message) -> None:
        """Send, if connected. Beats are left out while the other side does not read."""
        if not self.connected or self._finished:
            return
        if message["type"] == "beat" and len(self._pending) > _BACKLOG_BYTES:
            return
        self._pending += encode(message)
        self._flush()

    def finish(self) -> None:
        """Nothing more will be said on this connection: the other side sees its end after the rest."""
        if self._socket is not None and self.connected and not self._pending and not self._finished:
            self._finished = True
            with contextlib.suppress(OSError):  # it has broken: `turn` sees it
                self._socket.shutdown(socket.SHUT_WR)

    def restart(self) -> None:
        """Give up the connection there is and make another at once."""
        self._close()
        self._failures = 0
        self.next_at = 0.0

    def close(self) -> None:
        """Give up the connection for good."""
        self._close()
        self.next_at = None

    def turn(self, now: float, events: int) -> None:
        """Do what is ready (`events` of poll, 0: none) or due."""
        if self._socket is None:
            return self._connect(now) if self.next_at is not None and now >= self.next_at else None
        if self._connecting:
            if events:
                return self._complete(now)
            return self._lost(now, broken=True) if now >= (self.next_at or 0.0) else None
        if self._faulty:
            return self._lost(now, broken=True)
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            self._read(now)
        if self._pending:
            self._flush()
        return None

    def _connect(self, now: float) -> None:
        address = self._find()
        if address is None:
            return self._lost(now, broken=True)
        try:
            host, port = address_of(address)
            family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_PEER_MS)
            result = self._socket.connect_ex(where)
        except (OSError, ValueError):  # no such host, no such address: looked up anew the next time
            return self._lost(now, broken=True)
        if result not in (0, errno.EINPROGRESS):
            return self._lost(now, broken=True)
        self._connecting = True
        self.next_at = now + _CONNECT_SECONDS
        return None

    def _complete(self, now: float) -> None:
        assert self._socket is not None
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return self._lost(now, broken=True)
        self._connecting = False
        self._since = now
        self.next_at = None
        self._opened()
        return None

    def _read(self, now: float) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return None
        except OSError:
            return self._lost(now, broken=True)
        if not data:
            return self._lost(now, broken=False)
        self._incoming += data
        try:
            for message in self._frames():
                self._heard(message)
        except (ValueError, KeyError, TypeError):  # the other side does not speak this protocol
            self._lost(now, broken=True)
        return None

    def _frames(self) -> list[Message]:
        frames: list[Message] = []
        while len(self._incoming) >= 4:
            length = int.from_bytes(self._incoming[:4], "big")
            if length > MAX_TEXT_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            if len(self._incoming) < 4 + length:
                break
            frames.append(json.loads(self._incoming[4 : 4 + length]))
            del self._incoming[: 4 + length]
        return frames

    def _flush(self) -> None:
        if self._socket is None:
            return
        try:
            del self._pending[: self._socket.send(self._pending)]
        except BlockingIOError:
            pass
        except OSError:  # the next turn takes it down
            self._faulty = True
            self.next_at = 0.0

    def _lost(self, now: float, *, broken: bool) -> None:
        if self.connected and now - self._since > _STEADY_SECONDS:
            self._failures = 0
        self._close()
        self.broken = broken
        self.next_at = now + _PAUSES_SECONDS[min(self._failures, len(_PAUSES_SECONDS) - 1)]
        self._failures += 1

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._connecting = self._finished = self._faulty = False
        self._pending.clear()
        self._incoming.clear()
