"""The double buffer that a state is staged in: files in shared memory, or private memory.

A slot is a page of header, the tensors, and a document (JSON: the plain part of the state and where each
tensor lies). Of the two slots one always holds the newest committed state while the other is filled.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from shoal import faults
from shoal.elastic.checkpoint import header as heads
from shoal.elastic.checkpoint import layout
from shoal.elastic.checkpoint.header import Header
from shoal.elastic.checkpoint.tree import Json
from shoal.elastic.errors import CheckpointError

__all__ = ["Content", "Slot", "choose", "read", "size_of"]


@dataclass(frozen=True)
class Content:
    """What a slot holds. `tensors` lie in the slot, or are copies of their own where `read` says so."""

    header: Header
    plain: Json
    places: tuple[layout.Place, ...]
    tensors: dict[str, torch.Tensor]


class Slot:
    """One half of the double buffer. Not thread-safe: the saver decides which thread may touch it.

    `path` is its file; None keeps it in private memory, gone with the process.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._map = mmap.mmap(-1, heads.PAGE_BYTES)
        self._bytes = 0
        self.header = Header(heads.EMPTY)

    def reserve(self, size: int) -> None:
        """Have room for `size` bytes of tensors and document, in pages that are already there.

        Raises:
            OSError: no room for it (ENOSPC); what the slot held is lost in any case.
        """
        if size <= self._bytes:
            return
        self.header = Header(heads.EMPTY)
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = heads.PAGE_BYTES + size
        if self.path is None:
            self._map = mmap.mmap(-1, whole)
        else:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # without it a full tmpfs ends the process with SIGBUS at the first write to a new page
                os.posix_fallocate(descriptor, 0, whole)
                self._map = mmap.mmap(descriptor, whole)
            finally:
                os.close(descriptor)
            self._map[: heads.PAGE_BYTES] = heads.pack(self.header).ljust(heads.PAGE_BYTES, b"\0")
        _flat(self._map)[:: mmap.PAGESIZE].fill_(0)  # page faults here, not in the first copy
        self._bytes = size

    def fill(
        self,
        header: Header,
        plain: Json,
        tensors: dict[str, torch.Tensor],
        places: Sequence[layout.Place],
    ) -> None:
        """Copy a state in; on return the slot is complete and `STAGED`, and the sources may change.

        Raises:
            OSError: no room for it.
            CheckpointError: `Unsupported` when the plain part is not JSON after all.
        """
        document = _document(plain, places)
        data_bytes = layout.extent(places)
        self.reserve(data_bytes + len(document))
        self._write(Header(heads.EMPTY))
        faults.point("checkpoint.memory.begun")
        layout.copy_in(tensors, places, self._data())
        offset = heads.PAGE_BYTES + data_bytes
        self._map[offset : offset + len(document)] = document
        self._write(
            replace(
                header,
                state=heads.STAGED,
                document_offset=offset,
                document_bytes=len(document),
                document_sha256=hashlib.sha256(document).digest(),
            )
        )
        faults.point("checkpoint.memory.staged")

    def commit(self, epoch: int) -> None:
        """Its step is committed: from here on a successor may use it."""
        self._write(replace(self.header, state=heads.COMMITTED, epoch=epoch))
        faults.point("checkpoint.memory.committed")

    def vouch(self, places: Sequence[layout.Place]) -> None:
        """Note the hash of its tensors, once it is known."""
        self._write(replace(self.header, data_sha256=layout.combined(places)))

    def clear(self) -> None:
        """What it holds is not to be used."""
        self._write(Header(heads.EMPTY))

    def content(self) -> Content:
        """What it holds, as views into it: valid until it is filled again.

        Raises:
            CheckpointError: `Damaged`.
        """
        return _parse(self.header, self._map)

    def _write(self, header: Header) -> None:
        packed = heads.pack(header)
        self._map[: len(packed)] = packed
        self.header = header

    def _data(self) -> torch.Tensor:
        return _flat(self._map)[heads.PAGE_BYTES :]


def size_of(plain: Json, places: Sequence[layout.Place]) -> int:
    """Bytes that a slot needs for these, its header aside."""
    return layout.extent(places) + len(_document(plain, places))


def choose(slots: Sequence[Slot], busy: Slot | None) -> Slot:
    """The slot to stage into: not the one that is being written to disk (`busy`), nor the newest
    committed one unless the other is busy (then that one is complete and committed itself)."""
    free = [slot for slot in slots if slot is not busy]
    return min(free, key=lambda slot: (slot.header.state == heads.COMMITTED, slot.header.sequence))


def read(path: Path) -> Content:
    """The committed state in a slot's file, copied out of it.

    The tensors are compared with their hash if it had been counted; if not, that the slot is complete
    has to do.

    Raises:
        CheckpointError: `Damaged`; also when a writer that is alive has filled the slot again.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    header = heads.unpack(mapped[: heads.PAGE_BYTES])
    if header is None or header.state != heads.COMMITTED:
        raise CheckpointError("Damaged", "there is no committed state in it any more")
    content = _parse(header, mapped)
    own = {name: tensor.clone() for name, tensor in content.tensors.items()}
    with path.open("rb") as file:
        now = heads.unpack(file.read(heads.PAGE_BYTES))
    if now is None or replace(now, data_sha256=header.data_sha256) != header:
        raise CheckpointError("Damaged", "its writer has replaced it")
    if any(header.data_sha256):
        places = layout.hashed(content.places, own)
        if layout.combined(places) != header.data_sha256:
            raise CheckpointError("Damaged", "the hash of the tensors differs")
    return replace(content, tensors=own)


def _parse(header: Header, mapped: mmap.mmap) -> Content:
    document = mapped[header.document_offset : header.document_offset + header.document_bytes]
    if hashlib.sha256(document).digest() != header.document_sha256:
        raise CheckpointError("Damaged", "the hash of the plain part differs")
    found: Any = json.loads(document)
    places = layout.read(found["tensors"])
    return Content(
        header, found["plain"], places, layout.views(places, _flat(mapped)[heads.PAGE_BYTES :])
    )


def _document(plain: Json, places: Sequence[layout.Place]) -> bytes:
    text = json.dumps({"plain": plain, "tensors": layout.written(places)}, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _flat(mapped: mmap.mmap) -> torch.Tensor:
    return torch.frombuffer(mapped, dtype=torch.uint8)
