"""The first page of a slot: what is in it and whether it is complete.

`EMPTY` is written before a slot is filled, `STAGED` after its last byte, `COMMITTED` when its step is
known to be committed. A process that is killed in between leaves `EMPTY`, or a header with a checksum
that is wrong, and both mean: there is nothing here. Standard library only.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Literal

__all__ = ["COMMITTED", "EMPTY", "PAGE_BYTES", "STAGED", "Header", "pack", "unpack"]

PAGE_BYTES = 4096
"""The header's room; the data follow."""

State = Literal[0, 1, 2]
EMPTY: State = 0
STAGED: State = 1
COMMITTED: State = 2

_MAGIC = b"SHOALCK1"
_FORM = struct.Struct("<8sI4xQQQQQ32s32s")
_SUM = struct.Struct("<I")


@dataclass(frozen=True)
class Header:
    """`document` lies at `document_offset` from the file's start, `document_bytes` long.

    `data_sha256` is over all tensors; zeros until it has been counted, which is after the commit.
    """

    state: State
    sequence: int = 0
    step: int = 0
    epoch: int = 0
    document_offset: int = 0
    document_bytes: int = 0
    document_sha256: bytes = bytes(32)
    data_sha256: bytes = bytes(32)


def pack(header: Header) -> bytes:
    """Its bytes, checksum included; shorter than a page."""
    body = _FORM.pack(
        _MAGIC,
        header.state,
        header.sequence,
        header.step,
        header.epoch,
        header.document_offset,
        header.document_bytes,
        header.document_sha256,
        header.data_sha256,
    )
    return body + _SUM.pack(zlib.crc32(body))


def unpack(page: bytes) -> Header | None:
    """The header at the beginning of a slot; None when there is none, or half of one."""
    if len(page) < _FORM.size + _SUM.size:
        return None
    body = page[: _FORM.size]
    (checksum,) = _SUM.unpack_from(page, _FORM.size)
    magic, state, *rest = _FORM.unpack(body)
    if magic != _MAGIC or zlib.crc32(body) != checksum or state not in (EMPTY, STAGED, COMMITTED):
        return None
    return Header(state, *rest)
