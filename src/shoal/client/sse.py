"""Server-sent events, as far as watches need them: fields `id`, `event` and `data`, and comments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class ServerEvent(NamedTuple):
    """One event; `data` without its line ends."""

    id: str
    type: str
    data: bytes


def parse(lines: Iterable[bytes]) -> Iterator[ServerEvent]:
    """The events in a stream of lines. An event that was cut off is not given."""
    identity, kind, data = "", "", b""
    for line in lines:
        text = line.rstrip(b"\r\n")
        if not text:
            if kind or data:
                yield ServerEvent(identity, kind, data)
            kind, data = "", b""
            continue
        field, _, value = text.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data = data + b"\n" + value if data else value
        elif field == b"event":
            kind = value.decode()
        elif field == b"id":
            identity = value.decode()


def render(event: ServerEvent) -> bytes:
    """The event as it goes over the wire. JSON needs no line ends, so `data` has none afterwards."""
    data = event.data.replace(b"\n", b" ")
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event.id.encode(), event.type.encode(), data)
