"""Where each tensor lies in a flat buffer of bytes, and the hashes of what it holds.

Offsets are in bytes from the buffer's start, multiples of 64, so every dtype is aligned and copies take
the fast way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from shoal.elastic.checkpoint.tree import Json
from shoal.elastic.errors import CheckpointError

__all__ = [
    "Place",
    "check",
    "combined",
    "copy_in",
    "extent",
    "hashed",
    "plan",
    "read",
    "views",
    "written",
]

_ALIGN = 64


@dataclass(frozen=True)
class Place:
    """One tensor: `bytes` long at `offset`; `sha256` of its contiguous bytes, "" if not known yet."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    sha256: str = ""


def plan(tensors: Mapping[str, torch.Tensor]) -> tuple[Place, ...]:
    """Places one after the other, in the order of `tensors`."""
    places: list[Place] = []
    at = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        dtype = str(tensor.dtype).removeprefix("torch.")
        places.append(Place(name, dtype, tuple(tensor.shape), at, size))
        at += -(-size // _ALIGN) * _ALIGN
    return tuple(places)


def extent(places: Sequence[Place]) -> int:
    """Bytes that a buffer for these needs."""
    return max((place.offset + -(-place.bytes // _ALIGN) * _ALIGN for place in places), default=0)


def views(places: Sequence[Place], buffer: torch.Tensor) -> dict[str, torch.Tensor]:
    """Tensors that lie in `buffer` (uint8, one dimension, at least `extent` long).

    Raises:
        CheckpointError: `Damaged` when a place lies outside or its numbers contradict each other.
    """
    found: dict[str, torch.Tensor] = {}
    for place in places:
        dtype = _dtype_of(place)
        elements = torch.Size(place.shape).numel()
        inside = place.offset >= 0 and place.offset + place.bytes <= buffer.numel()
        if not inside or min(place.shape, default=0) < 0 or elements * dtype.itemsize != place.bytes:
            raise CheckpointError("Damaged", f"tensor {place.name} has no possible place")
        piece = buffer[place.offset : place.offset + place.bytes]
        found[place.name] = piece.view(dtype).view(place.shape)
    return found


def copy_in(tensors: Mapping[str, torch.Tensor], places: Sequence[Place], buffer: torch.Tensor) -> None:
    """Copy every tensor to its place; on return all of them are there, also those of a GPU."""
    for name, target in views(places, buffer).items():
        target.copy_(tensors[name])


def hashed(places: Sequence[Place], tensors: Mapping[str, torch.Tensor]) -> tuple[Place, ...]:
    """The same places with the SHA-256 of each contiguous tensor on the CPU; the GIL is left free."""
    return tuple(replace(place, sha256=_digest(tensors[place.name])) for place in places)


def check(places: Sequence[Place], tensors: Mapping[str, torch.Tensor]) -> None:
    """Compare tensors with the hashes in their places; a place without one is not looked at.

    Raises:
        CheckpointError: `Damaged`, naming the first tensor that differs.
    """
    for place in places:
        if place.sha256 and _digest(tensors[place.name]) != place.sha256:
            raise CheckpointError("Damaged", f"the hash of tensor {place.name} differs")


def combined(places: Sequence[Place]) -> bytes:
    """One SHA-256 (32 bytes) over the hashes of all places, in their order."""
    return hashlib.sha256("".join(place.sha256 for place in places).encode()).digest()


def written(places: Sequence[Place]) -> Json:
    """Places as JSON."""
    return [[p.name, p.dtype, list(p.shape), p.offset, p.bytes, p.sha256] for p in places]


def read(document: Any) -> tuple[Place, ...]:  # Any: from a file
    """Places from JSON.

    Raises:
        CheckpointError: `Damaged` when it is not what `written` gives.
    """
    try:
        return tuple(
            Place(
                str(name), str(dtype), tuple(int(n) for n in shape), int(offset), int(size), str(sha256)
            )
            for name, dtype, shape, offset, size, sha256 in document
        )
    except (TypeError, ValueError) as error:
        raise CheckpointError("Damaged", f"the list of tensors cannot be read ({error!r})") from error


def _dtype_of(place: Place) -> torch.dtype:
    dtype = getattr(torch, place.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(
            "Damaged", f"tensor {place.name} is of {place.dtype}, which torch does not know"
        )
    return dtype


def _digest(tensor: torch.Tensor) -> str:
    flat = tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else None
    # numpy's view is the only way to a tensor's bytes without a copy
    return hashlib.sha256(b"" if flat is None else flat.numpy().data).hexdigest()
