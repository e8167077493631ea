"""The event loop of a server: the application behind its listeners, until it is asked to stop.

Runs on the main thread of a server and on any thread in tests; `stop` may be called from any thread
and from a signal handler.
"""

from __future__ import annotations

import asyncio
import http
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from shoal import __version__
from shoal.client.wire import VERSION_HEADER
from shoal.objects.errors import ShoalError, Unavailable
from shoal.server.listeners import REFUSALS, Listener, Listeners, Seat
from shoal.server.middleware import is_stream, problem
from shoal.server.peer import Peer, peer_of
from shoal.server.services import Signals

_KEEP_ALIVE_SECONDS = 75
_HEAD_SECONDS = 20.0
"""For a request's head, from the connection or, on a connection that is reused, from its first byte."""
_BODY_SECONDS = 60.0
"""For a request's body, from the end of its head. A stream (`takes_stream`) has no such limit."""
_REST_SECONDS = 2.0
"""For what a client still sends of a request that has been answered already."""
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
    """HTTP/1.1 with deadlines for what a client sends, and a place in the listener as long as it lasts.

    A client that does not keep a deadline gets 408, one for which there is no place 503, and the
    connection ends. Bytes that trickle in extend no deadline.
    """

    _listeners: Listeners
    _seat: Seat | None = None
    _lost: asyncio.Event
    """Set when the connection has ended. Made with the seat."""
    _refused = False
    _awaited: tuple[float, object] | None = None
    """The deadline that runs: how long it is and the request that it belongs to."""
    _deadline: asyncio.TimerHandle | None = None
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
        origin = _origin(listener, peer, transport)
        full = not listener.admits(origin)
        if full:
            listener.refused("full")
            if not listener.admits(origin, REFUSALS):
                transport.abort()
                return
        self._seat = Seat(listener, origin)
        self._lost = asyncio.Event()
        self.app_state: dict[str, Any] = {
            **self.app_state,
            "listener": listener.name,
            "peer": peer,
            "seat": self._seat,
            "lost": self._lost,
        }
        if full:
            text = "this client has too many connections, or the server has: close some, or try again"
            self._end(Unavailable(text))
        else:
            self._watch_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        if self._seat is not None:
            self._seat.leave()
            self._seat = None
            self._lost.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # it has its answer; its request is read so that it can be sent to the end
        super().data_received(data)
        self._watch_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_reading()

    def _watch_reading(self) -> None:
        """Let the deadline run for what the client has to send now, if it has to send anything."""
        awaited = self._to_come()
        if awaited == self._awaited or self._refused:
            return
        self._awaited = awaited
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if awaited is not None:
            self._deadline = self.loop.call_later(awaited[0], self._too_slow, awaited[0])

    @property
    def _current(self) -> RequestResponseCycle | None:
        """The newest request; uvicorn declares it as always there."""
        return cast("RequestResponseCycle | None", self.cycle)

    def _to_come(self) -> tuple[float, object] | None:
        """How long it may take, and the request before or to which it belongs."""
        cycle = self._current
        if self.transport.is_closing():
            return None
        if self.conn.their_state is h11.IDLE:
            begun = cycle is None or bool(self.conn.trailing_data[0])
            return (_HEAD_SECONDS, cycle) if begun else None
        if self.conn.their_state is not h11.SEND_BODY or cycle is None:
            return None
        return (_REST_SECONDS if cycle.response_complete else _BODY_SECONDS, cycle)

    def _too_slow(self, seconds: float) -> None:
        cycle = self._current
        answering = cycle is not None and cycle.response_started
        if cycle is not None and answering and not cycle.response_complete and is_stream(self.scope):
            return  # its body goes on as long as its answer
        if self._seat is not None:
            self._seat.listener.refused("slow")
        head = self.conn.their_state is h11.IDLE
        if (head and not self.conn.trailing_data[0]) or (answering and not head):
            self.transport.abort()  # it has sent nothing at all, or has an answer
            return
        part = "head" if head else "body"
        self._end(_TooSlow(f"the {part} of the request did not come within {seconds:g} s"))

    def _end(self, error: ShoalError) -> None:
        """Answer with the error, from outside of any request, and take no more."""
        self._refused = True
        answer = problem(error)
        phrase = http.HTTPStatus(answer.status_code).phrase
        headers = b"".join(b"%s: %s\r\n" % each for each in answer.raw_headers)
        named = f"connection: close\r\n{VERSION_HEADER}: {__version__}\r\n"
        head = f"HTTP/1.1 {answer.status_code} {phrase}\r\n{named}".encode() + headers
        self.transport.write(head + b"\r\n" + bytes(answer.body))
        cycle = self._current
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # its handler, which waits for the body, ends
            cycle.message_event.set()
        # not at once: a client that still sends would get an error in place of the answer
        self._deadline = self.loop.call_later(_REST_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        # not `close`, which would wait for the reader as well
        self._unread = self.loop.call_later(_UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()


def _origin(listener: Listener, peer: Peer, transport: asyncio.Transport) -> str:
    """The holder of a connection before it shows a token: a job, an address, or "" for the owner."""
    if listener.name == "tcp":
        return f"address:{transport.get_extra_info('peername')[0]}"
    if listener.name == "api" and not peer.evidence:
        return ""
    return f"job:{peer.job}"


class _TooSlow(ShoalError):
    code = "TooSlow"
    http_status = 408
