"""HTTP/1.1 as uvicorn speaks it, plus what uvicorn does not know: whose connection it is.

Each request finds its door and its peer in the scope's state. Connections that find no room, that do
not say what they want in time, or that do not take what they asked for, are closed: what is kept for a
reader is bounded in bytes (by uvicorn's flow control) and, here, in time.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from shoal.server.doors import Door, Doors
from shoal.server.peer import Peer, peer_of

__all__ = ["protocol_for"]

_REQUEST_SECONDS = 20.0
"""From the connection to the first request's head."""
_UNREAD_SECONDS = 60.0
"""A client that reads nothing of what waits for it for so long is gone."""


def protocol_for(doors: Doors) -> type[H11Protocol]:
    """The protocol class for a server with these doors."""

    class Connection(_Connection):
        _doors = doors

    return Connection


class _Connection(H11Protocol):
    _doors: Doors
    _door: Door | None = None
    _space = ""
    _impatience: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        door = self._doors.of(sock)
        peer = Peer(pid=0, uid=-1)
        if door.name != "tcp":
            try:
                peer = peer_of(sock)
            except OSError:
                transport.abort()
                return
        if not door.enter(peer.space):
            transport.abort()
            return
        self._door, self._space = door, peer.space
        self.app_state: dict[str, Any] = {**self.app_state, "door": door.name, "peer": peer}
        self._impatience = self.loop.call_later(_REQUEST_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._impatience, self._unread):
            if timer is not None:
                timer.cancel()
        if self._door is not None:
            self._door.leave(self._space)
            self._door = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # not `close`, which would wait for the reader as well
        self._unread = self.loop.call_later(_UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()

    def _give_up(self) -> None:
        if self.cycle is None:  # pyright: ignore[reportUnnecessaryComparison] - None until a request
            self.transport.abort()
