"""The event loop of a server: the application behind its listeners, until it is asked to stop.

Runs on the main thread of a server and on any thread in tests; `stop` may be called from any thread
and from a signal handler.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from shoal.server.listeners import Listener, Listeners
from shoal.server.peer import Peer, peer_of
from shoal.server.services import Signals

__all__ = ["Serving"]

_KEEP_ALIVE_SECONDS = 75
_REQUEST_SECONDS = 20.0
"""From the connection to the first request's head."""
_UNREAD_SECONDS = 60.0
"""A client that reads nothing of what waits for it for so long is gone."""
_HANDSHAKE_SECONDS = 10.0
_GOODBYE_SECONDS = 2
"""How long requests in progress may take to end once the server stops."""


class Serving:
    """One server's HTTP side."""

    def __init__(self, app: ASGIApp, listeners: Listeners, signals: Signals) -> None:
        self._listeners = listeners
        config = uvicorn.Config(
            app,
            http=_protocol_for(listeners),
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
        )
        self._server = _Server(config, listeners, signals)

    def run(self) -> None:
        """Serve until `stop`. Requests that wait in the sockets' queues are answered first come."""
        asyncio.run(self._main())

    def stop(self) -> None:
        """End: streams say goodbye, requests in progress get two seconds. Idempotent."""
        self._server.should_exit = True

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.server_state.connections)

    @property
    def started(self) -> bool:
        """Whether connections are being taken."""
        return self._server.started

    async def _main(self) -> None:
        await self._server.serve(sockets=self._listeners.sockets)


class _Server(uvicorn.Server):
    """Leaves signals to the owner of the process, and ends streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, listeners: Listeners, signals: Signals) -> None:
        super().__init__(config)
        self._listeners = listeners
        self._signals = signals

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but each listener has its own TLS, or none."""
        loop, config = asyncio.get_running_loop(), self.config

        def protocol() -> asyncio.Protocol:
            made: Any = config.http_protocol_class
            return made(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        self.servers = []
        for listener in self._listeners:
            server = await loop.create_server(
                protocol,
                sock=listener.socket,
                ssl=listener.tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if listener.tls else None,
                backlog=config.backlog,
            )
            self.servers.append(server)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._signals.stop()
        await super().shutdown(sockets)


def _protocol_for(listeners: Listeners) -> type[H11Protocol]:
    """The protocol class for a server with these listeners."""

    class Connection(_Connection):
        _listeners = listeners

    return Connection


class _Connection(H11Protocol):
    _listeners: Listeners
    _listener: Listener | None = None
    _space = ""
    _impatience: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        listener = self._listeners.of(sock)
        peer = Peer(pid=0, uid=-1)
        if listener.name != "tcp":
            try:
                peer = peer_of(sock)
            except OSError:
                transport.abort()
                return
        if not listener.enter(peer.space):
            transport.abort()
            return
        self._listener, self._space = listener, peer.space
        self.app_state: dict[str, Any] = {**self.app_state, "listener": listener.name, "peer": peer}
        self._impatience = self.loop.call_later(_REQUEST_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._impatience, self._unread):
            if timer is not None:
                timer.cancel()
        if self._listener is not None:
            self._listener.leave(self._space)
            self._listener = None
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
