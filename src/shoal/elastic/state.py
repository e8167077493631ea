"""All that training has become, as one block of bytes and a description of it, and back.

The state is a nested structure of plain data with tensors in it (state dicts). The tensors go into one
flat block, so that a copy is one copy and a broadcast one broadcast. The description is a pickle: it is
only taken from peers that have shown the job's key.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shoal.elastic.blocks import Blocks

__all__ = ["Packed", "Plan", "digest", "pack", "plan", "unpack"]

_ALIGNMENT = 64


@dataclass(frozen=True)
class Packed:
    """`meta` describes the structure; `flat`: uint8, one dimension."""

    meta: bytes
    flat: torch.Tensor


@dataclass(frozen=True)
class _Slot:
    """Where a tensor lies in the block."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


@dataclass(frozen=True)
class Plan:
    """How a tree will be packed: `size` bytes; `meta` as in `Packed`; its tensors and their offsets."""

    meta: bytes
    size: int
    places: tuple[tuple[torch.Tensor, int], ...]

    def pairs(self, block: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each tensor that is not empty, and its place in a block of `size` bytes: of its shape."""
        return [
            (tensor, block[at : at + tensor.nbytes].view(tensor.dtype).view(tensor.shape))
            for tensor, at in self.places
            if tensor.numel()
        ]


def plan(tree: Any) -> Plan:
    """Find the tensors of `tree`; nothing is copied."""
    places: list[tuple[torch.Tensor, int]] = []
    total = 0

    def slot(tensor: torch.Tensor) -> _Slot:
        nonlocal total
        place = _Slot(total, tuple(tensor.shape), tensor.dtype, tensor.device.type)
        places.append((tensor.detach(), total))
        total += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        return place

    skeleton = _map(tree, torch.Tensor, slot)
    return Plan(pickle.dumps(skeleton, pickle.HIGHEST_PROTOCOL), total, tuple(places))


def pack(tree: Any, blocks: Blocks | None = None) -> Packed:
    """Copy the tensors of `tree` into one block, from `blocks` if given; from a GPU too they are there
    on return."""
    planned = plan(tree)
    flat = (blocks or Blocks()).take(planned.size)
    pairs = planned.pairs(flat)
    for source, target in pairs:
        target.copy_(source, non_blocking=True)
    for device in {source.device for source, _ in pairs if source.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return Packed(planned.meta, flat)


def unpack(packed: Packed) -> Any:
    """The structure again; its tensors are views of the block, on the CPU."""

    def tensor(slot: _Slot) -> torch.Tensor:
        count = torch.Size(slot.shape).numel() * slot.dtype.itemsize
        return packed.flat[slot.offset : slot.offset + count].view(slot.dtype).view(slot.shape)

    return _map(pickle.load(io.BytesIO(packed.meta)), _Slot, tensor)


def digest(tensors: Sequence[torch.Tensor]) -> int:
    """48 bits over the bit patterns of these tensors: equal for equal ones, on any rank."""
    total = 0
    with torch.no_grad():
        for tensor in tensors:
            part = int(torch.hash_tensor(tensor.detach()).view(torch.int64)) if tensor.numel() else 0
            total = (total * 0x100000001B3 + part + 1) % (1 << 64)
    return (total ^ (total >> 16)) & ((1 << 48) - 1)


def _map(tree: Any, kind: type, change: Any) -> Any:
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, Mapping):
        made = {key: _map(value, kind, change) for key, value in tree.items()}  # pyright: ignore
        return made if type(tree) is dict else _same_kind(tree, made)  # pyright: ignore
    if isinstance(tree, (list, tuple)):
        items = [_map(value, kind, change) for value in tree]  # pyright: ignore
        if isinstance(tree, list):
            return items
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)  # pyright: ignore
    return tree


def _same_kind(tree: Mapping[Any, Any], made: dict[Any, Any]) -> Any:
    """An OrderedDict stays one (state dicts carry attributes that are not needed here)."""
    from collections import OrderedDict

    return OrderedDict(made) if isinstance(tree, OrderedDict) else made
