"""One question and its answer over TCP, as either side has it; never blocks.

A frame is four bytes of length (big endian) and as many bytes, sealed. The client connects, sends one
and reads one; the server reads one and sends one, or closes. Neither outlives its deadline.
"""

from __future__ import annotations

import selectors
import socket
import struct

__all__ = ["Stream", "Unreadable"]

_LENGTH = struct.Struct(">I")


class Unreadable(ConnectionError):
    """The stream has broken, or what comes is too long."""


class Stream:
    """A non-blocking socket, what is to be sent on it, what has come; its owner knows it by `token`."""

    def __init__(self, sock: socket.socket, token: str, ends_at: float, limit_bytes: int) -> None:
        self.socket = sock
        self.token = token
        self.ends_at = ends_at
        self._limit = limit_bytes
        self._outgoing = b""
        self._incoming = bytearray()

    @property
    def interest(self) -> int:
        """What to wait for."""
        return selectors.EVENT_WRITE if self._outgoing else selectors.EVENT_READ

    def say(self, payload: bytes) -> None:
        """Send that next."""
        self._outgoing = _LENGTH.pack(len(payload)) + payload

    def flush(self) -> bool:
        """Send what goes; True when all has gone.

        Raises:
            Unreadable: there is no answer.
        """
        try:
            self._outgoing = self._outgoing[self.socket.send(self._outgoing) :]
        except BlockingIOError:
            return False
        except OSError as error:
            raise Unreadable(str(error)) from error
        return not self._outgoing

    def take(self) -> bytes | None:
        """Read what is there; the payload once all of it has come.

        Raises:
            Unreadable: it ends too early, or is longer than the limit.
        """
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return None
        except OSError as error:
            raise Unreadable(str(error)) from error
        if not data:
            raise Unreadable("closed before a whole frame had come")
        self._incoming += data
        if len(self._incoming) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._incoming)
        if length > self._limit:
            raise Unreadable(f"a frame of {length} bytes; the limit is {self._limit}")
        if len(self._incoming) < _LENGTH.size + length:
            return None
        return bytes(self._incoming[_LENGTH.size : _LENGTH.size + length])
