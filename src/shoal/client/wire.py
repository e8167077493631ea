"""What client and server agree on beside the objects: headers, limits, and frames.

A frame carries raw bytes in a stream without escaping them: one byte of tag, four bytes of length
(big-endian), then the payload. Logs use frames one way, `exec` both ways.

Logs: `S` introduces a source (JSON: id, role, index, incarnation), `D` is data of a source (id, stamp
and offset, then bytes), `N` a note for the reader (JSON), `K` keeps the connection alive, `Z` ends the
stream on purpose (JSON; an error where it failed). A stream that stops without `Z` was cut off, and
may be resumed from the offsets.

Exec: `C` the command (JSON, first), `I` input (empty: end of input) and `R` size of the terminal (two
16-bit numbers) from the client; `O`, `E` output and errors, `X` exit code (JSON, last; an error where
it is not known) from the server; `K` from either. Port-forward: the same, with the port in `C`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

API = "/api/v1"
FRAMES = "application/vnd.shoal.frames"
VERSION_HEADER = "Shoal-Version"
RESULT_HEADER = "Shoal-Result"
"""On the answer to an apply: `created`, `changed` or `unchanged`."""
WARNINGS_HEADER = "Shoal-Warnings"
"""On the answer to a write: a JSON list of sentences, about what was taken and surely is not meant."""
IDEMPOTENCY_HEADER = "Idempotency-Key"

MAX_BODY_BYTES = 2 * 2**20
"""The largest document that a server takes; ten thousand environment variables fit several times."""
TOO_LARGE = f"a document may have {MAX_BODY_BYTES // 2**20} MiB at most"

_HEAD = struct.Struct("!cI")
_DATA = struct.Struct("!IdQ")
_MAX_FRAME_BYTES = 8 * 2**20


def frame(tag: bytes, payload: bytes = b"") -> bytes:
    """One frame, ready to be sent."""
    return _HEAD.pack(tag, len(payload)) + payload


def data_frame(source: int, at: float, offset: int, data: bytes) -> bytes:
    """A `D` frame of a log."""
    return _HEAD.pack(b"D", _DATA.size + len(data)) + _DATA.pack(source, at, offset) + data


def data_of(payload: bytes) -> tuple[int, float, int, bytes]:
    """Source, stamp, offset and bytes of a `D` frame."""
    source, at, offset = _DATA.unpack_from(payload)
    return source, at, offset, payload[_DATA.size :]


def read_frames(read: Callable[[int], bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Tags and payloads; `read(n)` gives n bytes, fewer only at the end.

    Raises:
        EOFError: the stream ended inside a frame.
        ValueError: what came is no frame.
    """
    while head := read(_HEAD.size):
        if len(head) < _HEAD.size:
            raise EOFError("the stream ended inside a frame")
        tag, length = _head(head)
        payload = read(length) if length else b""
        if len(payload) < length:
            raise EOFError("the stream ended inside a frame")
        yield tag, payload


def frames_in(buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """The complete frames at the front of `buffer`, which they are taken from.

    Raises:
        ValueError: what is there is no frame.
    """
    while len(buffer) >= _HEAD.size:
        tag, length = _head(buffer)
        end = _HEAD.size + length
        if len(buffer) < end:
            return
        payload = bytes(buffer[_HEAD.size : end])
        del buffer[:end]
        yield tag, payload


def _head(data: bytes | bytearray) -> tuple[bytes, int]:
    tag, length = _HEAD.unpack_from(data)
    if length > _MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes is larger than any that is sent")
    return tag, length
