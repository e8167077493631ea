"""The listeners through which requests come, and how wide each is.

`api` is the owner's unix socket, `tasks` the one that tasks see, `tcp` an address for people with
tokens. A listener knows its listening socket; a connection knows its listener by the address it came to.
What a stranger can take through a listener is bounded: connections in all, connections of one PID
namespace (one task cannot take its neighbours' places), and the time to say what it wants.
"""

from __future__ import annotations

import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from shoal.objects.errors import Invalid, Unavailable

__all__ = ["Listener", "ListenerName", "Listeners", "listen_tcp"]

ListenerName = Literal["api", "tasks", "tcp"]

_WIDTH = {"api": 2048, "tasks": 1024, "tcp": 512}
_WIDTH_PER_SPACE = 64
_BACKLOG = 512


@dataclass
class Listener:
    """One listening socket and its open connections. Touched on the event loop only."""

    name: ListenerName
    socket: socket.socket
    tls: ssl.SSLContext | None = None
    _inside: Counter[str] = field(default_factory=Counter[str])

    def enter(self, space: str) -> bool:
        """Take a place for a connection from that PID namespace; False when there is none."""
        if self._inside.total() >= _WIDTH[self.name]:
            return False
        if self.name == "tasks" and self._inside[space] >= _WIDTH_PER_SPACE:
            return False
        self._inside[space] += 1
        return True

    def leave(self, space: str) -> None:
        """Give the place back."""
        self._inside[space] -= 1
        if self._inside[space] <= 0:
            del self._inside[space]


class Listeners:
    """All listeners of a server."""

    def __init__(self, listeners: list[Listener]) -> None:
        self._listeners = listeners
        self._by_address: dict[Any, Listener] = {_address(each.socket): each for each in listeners}

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._listeners)

    @property
    def sockets(self) -> list[socket.socket]:
        """The sockets to accept on."""
        return [each.socket for each in self._listeners]

    def of(self, connection: socket.socket) -> Listener:
        """The listener that a connection came through."""
        return self._by_address.get(_address(connection)) or self._listeners[-1]


def listen_tcp(text: str) -> socket.socket:
    """A socket that listens at `HOST:PORT`.

    Raises:
        Invalid: that is no such address.
        Unavailable: it cannot be listened at.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"{text!r} is not an address to listen at", hint="such as 127.0.0.1:7450")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise Unavailable(
            f"nothing can listen at {text}: {error}", hint="choose another port, or 0 for any"
        ) from error


def _address(sock: socket.socket) -> Any:
    """Unix sockets by their path; TCP by port, for a listener at 0.0.0.0 has connections at others."""
    address = sock.getsockname()
    return address if isinstance(address, str | bytes) else address[1]
