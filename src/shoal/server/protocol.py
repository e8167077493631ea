"""HTTP/1.1 as uvicorn speaks it, plus what uvicorn does not know: whose connection it is.

Each request finds its door and its peer in the scope's state. Connections that find no room, or that
do not say what they want in time, are closed.
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
        if self._impatience is not None:
            self._impatience.cancel()
        if self._door is not None:
            self._door.leave(self._space)
            self._door = None
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if self.cycle is None:  # pyright: ignore[reportUnnecessaryComparison] - None until a request
            self.transport.abort()
