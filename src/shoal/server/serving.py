"""The event loop of a server: the application behind its doors, until it is told to stop.

Runs on the main thread of a server and on any thread in tests; `stop` may be called from any thread
and from a signal handler.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from shoal.server.concurrency import Signals
from shoal.server.doors import Doors
from shoal.server.protocol import protocol_for

__all__ = ["Serving"]

_KEEP_ALIVE_SECONDS = 75
_GOODBYE_SECONDS = 2
"""How long requests in progress may take to end once the server stops."""


class Serving:
    """One server's HTTP side."""

    def __init__(self, app: ASGIApp, doors: Doors, signals: Signals) -> None:
        self._doors = doors
        config = uvicorn.Config(
            app,
            http=protocol_for(doors),
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
        self._server = _Server(config, signals)

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
        await self._server.serve(sockets=self._doors.listeners)


class _Server(uvicorn.Server):
    """Leaves signals to whoever owns the process, and ends streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, signals: Signals) -> None:
        super().__init__(config)
        self._signals = signals

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._signals.stop()
        await super().shutdown(sockets)
