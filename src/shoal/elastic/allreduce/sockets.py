"""The connected sockets of a gloo group, found by their ports, and woken by shutting them down.

`shutdown(2)` on a connected socket wakes the threads that wait on it, in this process and in its peer,
also when a third is dead or stopped. On gloo's *listening* socket it would end the process: those are
left alone. The group's own operations give no such handle, so the descriptors are looked up: a socket
belongs to the group if it is connected to a peer's listening port or was accepted on ours.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Held", "connected", "listening_port", "shut_down", "unanswered"]

_RETRANSMITS = 2
"""Offset in `struct tcp_info` of the count of retransmissions in a row without an answer."""
_MOST_UNANSWERED = 4
_FOLDER = Path("/proc/self/fd")


@dataclass(frozen=True)
class Held:
    """A descriptor, and the inode it had: a number that has been used again is another socket."""

    descriptor: int
    inode: int


def listening_port(blob: bytes) -> int:
    """The port in the address that one end of a gloo group publishes; 0 when none is found there.

    The blob holds a `sockaddr` among pointers of the other process; a candidate counts only at an even
    offset and with a family that is ours.
    """
    for offset in range(0, max(0, min(len(blob), 64) - 8), 2):
        (family,) = struct.unpack_from("=H", blob, offset)
        if family not in (socket.AF_INET, socket.AF_INET6):
            continue
        (port,) = struct.unpack_from(">H", blob, offset + 2)
        address = blob[offset + 4 : offset + 8]
        if port and (family == socket.AF_INET6 or any(address)):
            return port
    return 0


def connected(own_port: int, peer_ports: Collection[int]) -> list[Held]:
    """This process's connected TCP sockets that end at one of these listening ports."""
    found: list[Held] = []
    for name in (path.name for path in _FOLDER.iterdir()) if _FOLDER.is_dir() else ():
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if (status.st_mode & 0o170000) != 0o140000:
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.type != socket.SOCK_STREAM or copy.family == socket.AF_UNIX:
                    continue
                here, there = copy.getsockname(), copy.getpeername()
                if here[1] == own_port or there[1] in peer_ports:
                    found.append(Held(int(name), status.st_ino))
    return found


def unanswered(held: Collection[Held]) -> bool:
    """Whether some peer's kernel has acknowledged nothing for about 3 s, though it was sent to: it is
    out of reach. One that is stopped, or reads late, acknowledges all the same."""
    for each in held:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(each.descriptor)) as copy:
            information = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
            if information[_RETRANSMITS] >= _MOST_UNANSWERED:
                return True
    return False


def shut_down(held: Collection[Held]) -> int:
    """Shut them down; how many there still were."""
    done = 0
    for each in held:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(each.descriptor)) as copy:
            if os.fstat(copy.fileno()).st_ino == each.inode:
                copy.shutdown(socket.SHUT_RDWR)
                done += 1
    return done
