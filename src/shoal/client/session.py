"""A command beside a task (`shoal exec`), over one HTTP request with body and answer open at once.

One thread may send while another receives.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any, Literal

import msgspec

from shoal.client.transport import Stream, Transport
from shoal.client.wire import FRAMES, frame, read_frames
from shoal.objects.errors import Unavailable, by_code

_SIZE = struct.Struct("!HH")
_PIECE_BYTES = 65536


class RemoteSession:
    """See `shoal.cluster.base.Session`; opened by `Client.exec`."""

    def __init__(self, transport: Transport, path: str, command: dict[str, Any]) -> None:
        first = frame(b"C", msgspec.json.encode(command))
        self._stream: Stream = transport.open_body(path, first, content_type=FRAMES)
        self._frames: Iterator[tuple[bytes, bytes]] = read_frames(self._stream.response.read)
        self._sending = threading.Lock()

    def send(self, data: bytes) -> None:
        """See `Session.send`."""
        for start in range(0, max(1, len(data)), _PIECE_BYTES):
            self._send(frame(b"I", data[start : start + _PIECE_BYTES]))

    def resize(self, rows: int, columns: int) -> None:
        """See `Session.resize`."""
        self._send(frame(b"R", _SIZE.pack(rows, columns)))

    def receive(self) -> tuple[Literal["out", "err", "exit"], bytes]:
        """See `Session.receive`.

        Raises:
            Unavailable: the server or the node was lost; how the command ended is not known.
        """
        try:
            for tag, payload in self._frames:
                if tag == b"O":
                    return "out", payload
                if tag == b"E":
                    return "err", payload
                if tag == b"X":
                    document: Any = msgspec.json.decode(payload)
                    if "code" in document:
                        raise by_code(document)
                    return "exit", str(document["exitCode"]).encode()
        except (OSError, HTTPException, EOFError, ValueError) as error:
            raise Unavailable("the connection was lost while the command ran") from error
        raise Unavailable("the connection was lost while the command ran")

    def interrupt(self) -> None:
        """Hang up while another thread receives: it gets Unavailable."""
        self._stream.interrupt()

    def close(self) -> None:
        """See `Session.close`."""
        self._stream.close()

    def _send(self, data: bytes) -> None:
        with self._sending:
            try:
                self._stream.send(data)
            except (OSError, HTTPException):
                return  # the command has ended: `receive` says how
