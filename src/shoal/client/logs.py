"""What tasks have written, as records that name the task of their bytes.

The bytes are the task's own: no decoding, no line splitting. When the connection is lost while
following, reading goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

import msgspec

from shoal.client.transport import CLOSED, Query, Stream, Transport
from shoal.client.wire import data_of, read_frames
from shoal.objects.errors import Unavailable, by_code

_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LogRecord:
    """Some bytes of one task's log; `at` is when the first of them was written."""

    role: str
    index: int
    incarnation: int
    at: float
    data: bytes
    missing_bytes: int = 0
    """How many bytes before these are gone for good (rotated away)."""


class _Source(msgspec.Struct, frozen=True):
    id: int
    role: str
    index: int
    incarnation: int


def _key(source: _Source) -> str:
    return f"{source.role}/{source.index}/{source.incarnation}"


class _Cut(Exception):
    """The stream stopped without its end frame."""


def read_logs(transport: Transport, path: str, query: Query) -> Iterator[LogRecord]:
    """The records of one request; see `Client.logs`. The first answer is awaited before returning.

    Raises:
        NotFound: no such job.
        Unavailable: the server was lost and did not come back.
    """
    return _records(transport, path, query, transport.open("GET", path, query=query))


def _records(transport: Transport, path: str, query: Query, stream: Stream) -> Iterator[LogRecord]:
    positions: dict[str, int] = {}
    whole = not query.get("tail") and not query.get("since")
    lost_since = 0.0
    try:
        while True:
            try:
                for record in _one_stream(stream, positions, whole=whole):
                    lost_since = 0.0
                    yield record
                return
            except (_Cut, OSError, HTTPException, EOFError, ValueError, AttributeError) as error:
                if transport.closed:  # here: the response has lost its file
                    raise Unavailable(CLOSED) from error
                if isinstance(error, ValueError | AttributeError):
                    raise
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > _PATIENCE_SECONDS:
                    raise Unavailable("the server was lost in the middle of a log") from error
            stream.close()
            stream = _resumed(transport, path, query, positions, lost_since)
    finally:
        stream.close()


def _resumed(
    transport: Transport, path: str, query: Query, positions: dict[str, int], lost_since: float
) -> Stream:
    body = msgspec.json.encode({"positions": positions})
    headers = {"Content-Type": "application/json"}
    pause = 0.05
    while True:
        try:
            return transport.open("POST", path, query=query, body=body, headers=headers)
        except Unavailable:
            if transport.closed or time.monotonic() - lost_since > _PATIENCE_SECONDS:
                raise
            time.sleep(pause)
            pause = min(1.0, pause * 2)


def _one_stream(stream: Stream, positions: dict[str, int], *, whole: bool) -> Iterator[LogRecord]:
    sources: dict[int, _Source] = {}
    for tag, payload in read_frames(stream.response.read):
        if tag == b"S":
            source = msgspec.json.decode(payload, type=_Source)
            sources[source.id] = source
            if whole:  # else the server decides again where an unread log begins
                positions.setdefault(_key(source), 0)
        elif tag == b"D":
            identity, at, offset, data = data_of(payload)
            source = sources[identity]
            key = _key(source)
            expected = positions.get(key, 0 if whole else offset)
            positions[key] = offset + len(data)
            yield LogRecord(
                source.role, source.index, source.incarnation, at, data, max(0, offset - expected)
            )
        elif tag == b"Z":
            document: Any = msgspec.json.decode(payload)
            if "code" in document:
                raise by_code(document)
            return
    raise _Cut
