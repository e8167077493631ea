"""Requests to a server over connections that are kept and reused; answers, or the server's errors.

Any number of threads may use one `Transport`. An idle connection that the server has closed is
noticed before it is reused. When a server that has answered before goes away, a request that may be
repeated is repeated until `patience_seconds` have passed, for a server that was killed is back within
two seconds; a first contact fails at once.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Self
from urllib.parse import urlencode
from weakref import WeakSet

import msgspec

from shoal import __version__
from shoal.client.address import Address
from shoal.client.wire import MAX_BODY_BYTES, TOO_LARGE, VERSION_HEADER, WARNINGS_HEADER
from shoal.objects.errors import Invalid, ShoalError, Unavailable, VersionSkew, by_code

Query = Mapping[str, str | int | float | bool | None]

CLOSED = "the client has been closed"
_MOST_IDLE = 4
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Answer:
    """A complete response that is no error; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream:
    """A response that is read while it comes, over a connection of its own."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self.response = response

    def send(self, data: bytes) -> None:
        """Add a chunk to the body of a request that was opened with `open_body`; empty ends it."""
        self._connection.send(_chunk(data))

    def interrupt(self) -> None:
        """Hang up; a thread that reads gets an end or an error, and is the one to close. Idempotent."""
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):  # the other side may have hung up already
                sock.shutdown(2)

    def close(self) -> None:
        """Hang up and let go; no other thread may be reading. Idempotent."""
        self.interrupt()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transport:
    """See the module. `check_version=False` is for `version` and `down`, which every server answers."""

    def __init__(
        self,
        address: Address,
        *,
        token: str = "",
        timeout_seconds: float = 30.0,
        patience_seconds: float = 5.0,
        check_version: bool = True,
    ) -> None:
        self.address = address
        self.timeout_seconds = timeout_seconds
        self.patience_seconds = patience_seconds
        self.on_warning: Callable[[str], None] = _log
        """Called with each warning of the server about what it accepted and is surely not meant; may be
        called from any thread that makes a request."""
        self._check = check_version
        self._headers = {"User-Agent": f"shoal/{__version__}"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: list[HTTPConnection] = []
        self._lock = threading.Lock()
        self._streams: WeakSet[Stream] = WeakSet()
        self._closed = False
        self._reached = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called: nothing is opened any more."""
        return self._closed

    def twin(self) -> Transport:
        """Another to the same server, with the same credential, that is closed apart from this one."""
        made = copy(self)
        made._idle, made._lock, made._streams = [], threading.Lock(), WeakSet()
        made._closed = False
        return made

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> Answer:
        """One request, complete. `repeatable` says that doing it twice is doing it once; absent, that
        is true of GET.

        Raises:
            ShoalError: what the server answered, as the type that it named.
            Unavailable: it cannot be reached, or was lost before it answered.
            VersionSkew: it is of another version.
        """
        if body is not None and len(body) > MAX_BODY_BYTES:
            raise Invalid(f"the document has {len(body):,} bytes; {TOO_LARGE}")
        target = _target(path, query)
        again = method == "GET" if repeatable is None else repeatable
        begun = time.monotonic()
        pause = _FIRST_PAUSE_SECONDS
        while True:
            connection, sent = self._connection(), False
            try:
                if connection.sock is None:
                    connection.connect()
                sent = True
                response = self._send(connection, method, target, body, headers)
                content = response.read()
            except (OSError, HTTPException) as error:
                connection.close()
                # a connection that was taken is a server that was there
                self._reached = self._reached or sent
                patience = self.patience_seconds if self._reached else 0.0
                if (sent and not again) or time.monotonic() + pause > begun + patience:
                    raise self._unreachable(error, unknown=sent and not again) from error
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)
                continue
            self._keep(connection, response)
            self._judge(response, content)
            named = {name.lower(): value for name, value in response.headers.items()}
            self._report_warnings(named.get(WARNINGS_HEADER.lower(), ""))
            return Answer(response.status, named, content)

    def open(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        silence_seconds: float = 45.0,
    ) -> Stream:
        """Begin a request; its answer is read while it comes. `silence_seconds` without a byte are
        an error for the reader: the server sends something every ten.

        Raises: as `request`.
        """
        connection = self.address.open(self.timeout_seconds)
        try:
            connection.connect()
            response = self._send(connection, method, _target(path, query), body, headers)
            return self._streaming(connection, response, silence_seconds)
        except (OSError, HTTPException) as error:
            connection.close()
            raise self._unreachable(error, unknown=False) from error

    def open_body(
        self, path: str, first: bytes, *, content_type: str, silence_seconds: float = 45.0
    ) -> Stream:
        """Begin a POST with a body that starts with `first` and goes on (`Stream.send`) while its answer
        comes.

        Raises: as `request`.
        """
        connection = self.address.open(self.timeout_seconds)
        try:
            connection.connect()
            connection.putrequest("POST", path, skip_accept_encoding=True)
            for name, value in self._headers.items():
                connection.putheader(name, value)
            connection.putheader("Content-Type", content_type)
            connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders()
            connection.send(_chunk(first))
            return self._streaming(connection, connection.getresponse(), silence_seconds)
        except (OSError, HTTPException) as error:
            connection.close()
            raise self._unreachable(error, unknown=False) from error

    def close(self) -> None:
        """Let go of idle connections and end the streams that are open; idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            streams = list(self._streams)
        for each in (*idle, *streams):
            each.close()

    def _connection(self) -> HTTPConnection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self.address.open(self.timeout_seconds)
            if not _hung_up(connection):
                return connection
            connection.close()

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> HTTPResponse:
        every = {**self._headers, **(headers or {})}
        if body is not None:
            every.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, target, body=body, headers=every)
        except (BrokenPipeError, ConnectionResetError):
            if body is None:
                raise
            # A server that refuses a body answers before it has read all of it: its reason is there.
        return connection.getresponse()

    def _streaming(
        self, connection: HTTPConnection, response: HTTPResponse, silence_seconds: float
    ) -> Stream:
        if response.status >= 300:
            content = response.read()
            connection.close()
            self._judge(response, content)
        try:
            self._judge(response, b"")
        except ShoalError:
            connection.close()
            raise
        if connection.sock is not None:
            connection.sock.settimeout(silence_seconds)
        stream = Stream(connection, response)
        with self._lock:
            self._streams.add(stream)
            closed = self._closed
        if closed:
            stream.close()
            raise Unavailable(CLOSED)
        return stream

    def _keep(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        with self._lock:
            if not response.will_close and not self._closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _judge(self, response: HTTPResponse, content: bytes) -> None:
        self._reached = True
        served = response.headers.get(VERSION_HEADER, "")
        if self._check and served and _series(served) != _series(__version__):
            raise _skew(served, self.address)
        if served and response.status < 300:
            return
        document: Any = None
        with suppress(msgspec.DecodeError):  # not from a Shoal server, or cut off: said below
            document = msgspec.json.decode(content)
        if served and isinstance(document, dict) and "code" in document:
            raise by_code(document)  # pyright: ignore[reportUnknownArgumentType]
        raise Unavailable(
            f"{self.address.text} answered {response.status} {response.reason}, "
            "which is no answer of a Shoal server",
            hint="is this the address of a Shoal server?",
        )

    def _report_warnings(self, warnings: str) -> None:
        if warnings:
            for sentence in msgspec.json.decode(warnings.encode(), type=list[str]):
                self.on_warning(sentence)

    def _unreachable(self, error: Exception, *, unknown: bool) -> Unavailable:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        where = self.address.text
        if unknown:
            return Unavailable(
                f"the server at {where} was lost before it answered ({reason}); whether the request "
                "was carried out is not known",
                hint="look with: shoal get jobs",
            )
        if isinstance(error, PermissionError):
            hint = "it is another user's; yours is where SHOAL_HOME, --home or ~/.shoal lead"
        else:
            hint = "start one with: shoal up" if self.address.path else "is it running there?"
        return Unavailable(f"no server answers at {where} ({reason})", hint=hint)


def _log(sentence: str) -> None:
    import logging  # costs a command line more than it is worth: it says warnings itself

    logging.getLogger("shoal.client").warning("%s", sentence)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _target(path: str, query: Query | None) -> str:
    said = {k: _text(v) for k, v in (query or {}).items() if v not in (None, "") and v is not False}
    return f"{path}?{urlencode(said)}" if said else path


def _text(value: str | float | bool) -> str:
    return "true" if value is True else str(value)


def _hung_up(connection: HTTPConnection) -> bool:
    """Whether an idle connection has something to read, which can only be its end."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _series(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def _skew(served: str, address: Address) -> VersionSkew:
    if _order(served) < _order(__version__):
        hint = "restart the server with this version: shoal down && shoal up (finished jobs are kept)"
    else:
        hint = f"use the server's version here: pip install 'shoal=={served}'"
    return VersionSkew(
        f"the server at {address.text} is of version {served}, this client of version {__version__}",
        hint=hint,
        details={"server": served, "client": __version__},
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
