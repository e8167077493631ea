"""The doors through which requests come, and how wide each is.

`api` is the owner's unix socket, `tasks` the one that tasks see, `tcp` an address for people with
tokens. A door knows its listening socket; a connection knows its door by the address it came to.
What a stranger can take through a door is bounded: connections in all, connections of one PID
namespace (one task cannot take its neighbours' places), and the time to say what it wants.
"""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from shoal.objects.errors import Invalid, Unavailable

__all__ = ["Door", "DoorName", "Doors", "listen_tcp"]

DoorName = Literal["api", "tasks", "tcp"]

_WIDTH = {"api": 2048, "tasks": 1024, "tcp": 512}
_WIDTH_PER_SPACE = 64
_BACKLOG = 512


@dataclass
class Door:
    """One listening socket and who is inside. Touched on the event loop only."""

    name: DoorName
    listener: socket.socket
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


class Doors:
    """All doors of a server."""

    def __init__(self, doors: list[Door]) -> None:
        self._doors = doors
        self._by_address: dict[Any, Door] = {_address(door.listener): door for door in doors}

    @property
    def listeners(self) -> list[socket.socket]:
        """The sockets to accept on."""
        return [door.listener for door in self._doors]

    def of(self, connection: socket.socket) -> Door:
        """The door that a connection came through."""
        return self._by_address.get(_address(connection)) or self._doors[-1]


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
