"""Messages between the processes of a job: a length, a JSON object, and bytes that may follow it.

A frame is four bytes (big endian) that count the JSON text, the text, and as many bytes more as its
member `bytes` says. Standard library only: the coordinator and the sidecar import this.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any, cast

__all__ = [
    "MAX_TEXT_BYTES",
    "Closed",
    "Connection",
    "Garbled",
    "Message",
    "address_of",
    "connect",
    "encode",
]

MAX_TEXT_BYTES = 1 << 20
_LENGTH = struct.Struct(">I")

Message = dict[str, Any]
"""A JSON object with a member `type`."""


class Closed(ConnectionError):
    """The other side has closed the connection, or it broke."""


class Garbled(Closed):
    """What came is no frame: the other side speaks something else."""


def encode(message: Message) -> bytes:
    """The frame of a message, without the bytes that follow it.

    Raises:
        ValueError: its text is longer than `MAX_TEXT_BYTES`.
    """
    text = json.dumps(message, separators=(",", ":")).encode()
    if len(text) > MAX_TEXT_BYTES:
        raise ValueError(f"a message of {len(text)} bytes; the limit is {MAX_TEXT_BYTES}")
    return _LENGTH.pack(len(text)) + text


class Connection:
    """A connected stream socket that speaks frames. One thread may receive while others send."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._sending = threading.Lock()
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: Message, payload: Sequence[memoryview | bytes] = ()) -> None:
        """Send one frame; `payload` is sent after it, and `message["bytes"]` must be its length.

        Raises:
            Closed: the connection is gone.
        """
        try:
            with self._sending:
                self.socket.sendall(encode(message))
                for part in payload:
                    self.socket.sendall(part)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self) -> Message:
        """Wait for the next frame, without the bytes that follow it.

        Raises:
            Closed: the connection is gone.
            Garbled: what came is no frame.
            TimeoutError: the socket has a timeout, and it has passed.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > MAX_TEXT_BYTES:
            raise Garbled(f"a frame of {length} bytes")
        try:
            decoded: object = json.loads(self._exactly(length))
        except ValueError as error:
            raise Garbled(f"a frame that is no JSON: {error}") from error
        message = cast("Message", decoded) if isinstance(decoded, dict) else {}
        if not isinstance(message.get("type"), str):
            raise Garbled("a frame without a type")
        return message

    def receive_into(self, buffer: memoryview) -> None:
        """Fill the buffer with the bytes that follow a frame.

        Raises:
            Closed: the connection went before they had all come.
        """
        done = 0
        try:
            while done < len(buffer):
                count = self.socket.recv_into(buffer[done:])
                if not count:
                    raise Closed("the connection was closed in the middle of a payload")
                done += count
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed(str(error)) from error

    def close(self) -> None:
        """Wake a thread that receives, and close. Idempotent."""
        with contextlib.suppress(OSError):  # it is not connected any more
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        buffer = bytearray(count)
        self.receive_into(memoryview(buffer))
        return bytes(buffer)


def connect(address: str, timeout_seconds: float) -> Connection:
    """Connect to `host:port`. The socket keeps the timeout.

    Raises:
        Closed: there is no answer in time.
    """
    host, port = address_of(address)
    try:
        return Connection(socket.create_connection((host, port), timeout_seconds))
    except OSError as error:
        raise Closed(f"{address} does not answer: {error}") from error


def address_of(text: str) -> tuple[str, int]:
    """`host:port`, or `[v6]:port`, in two.

    Raises:
        ValueError: it is neither.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
