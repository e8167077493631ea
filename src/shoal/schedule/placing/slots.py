"""Which GPUs of a node a task gets, for many nodes at once.

Whole GPUs are given out as a buddy system would: 8 are two blocks of 4, each two of 2. A task takes
from the smallest free block that holds it, so that larger ones stay whole, and tasks on 2 or 4 GPUs
get neighbours, which are the ones with fast links between them.

A share goes to the fullest GPU that still holds it. Amounts are exact per GPU: 600 free here and 600
there are not 800 anywhere.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import WHOLE, Ints

__all__ = ["shared_slots", "slots_in_turn", "whole_slots"]

_NEVER = np.int64(2**40)


def whole_slots(free: Ints, counts: Ints, gpus: int) -> Ints:
    """Slots for `counts` (m,) tasks of `gpus` each on nodes with `free` (m, g) thousandths.

    Returns (counts.sum(), gpus), node by node. Each node has enough slots that are wholly free.
    """
    idle = free == WHOLE
    if len(idle) == 1:
        return _on_one_node(tuple(idle[0].tolist()), int(counts[0]), gpus)
    return _on_nodes(idle, counts, gpus)


def shared_slots(free: Ints, counts: Ints, share: int) -> Ints:
    """A slot for each of `counts` (m,) tasks of `share` thousandths, (counts.sum(), 1), node by node."""
    holds = np.maximum(free, 0) // share
    order = np.argsort(np.where(holds > 0, free, _NEVER), axis=1, kind="stable")
    holds = np.take_along_axis(holds, order, axis=1)
    before = np.cumsum(holds, axis=1) - holds
    taken = np.clip(counts[:, None] - before, 0, holds)
    return np.repeat(order.ravel(), taken.ravel())[:, None]


def slots_in_turn(free: NDArray[np.signedinteger[Any]], count: int, gpus: int) -> Ints:
    """Slots for `count` tasks of `gpus` each, (count, gpus), which come one after the other to a node
    with `free` (g,) thousandths; each has enough that are wholly free."""
    return _in_turn(tuple((free == WHOLE).tolist()), count, gpus)


@lru_cache(maxsize=4096)
def _in_turn(idle: tuple[bool, ...], count: int, gpus: int) -> Ints:
    left = np.array(idle)
    slots = np.empty((count, gpus), dtype=np.int64)
    for at in range(count if gpus else 0):
        slots[at] = _on_one_node(tuple(left.tolist()), 1, gpus)
        left[slots[at]] = False
    slots.setflags(write=False)
    return slots


@lru_cache(maxsize=4096)
def _on_one_node(idle: tuple[bool, ...], count: int, gpus: int) -> Ints:
    """Nodes are alike, and there are few ways to be half full: the answers are kept."""
    slots = _on_nodes(np.array([idle]), np.array([count]), gpus)
    slots.setflags(write=False)
    return slots


def _on_nodes(idle: NDArray[np.bool_], counts: Ints, gpus: int) -> Ints:
    need = counts * gpus
    if (idle.sum(axis=1) == need).all():
        return np.nonzero(idle)[1].reshape(-1, gpus)
    width = 1 << (gpus - 1).bit_length()
    block = _blocks(idle)
    rank = np.where(block >= width, block, 2 * block.max() + width - block)
    order = np.argsort(np.where(idle, rank, _NEVER), axis=1, kind="stable")
    return order[np.arange(idle.shape[1]) < need[:, None]].reshape(-1, gpus)


def _blocks(idle: NDArray[np.bool_]) -> Ints:
    """(m, g): the size of the largest aligned block of idle slots that each is in."""
    rows, slots = idle.shape
    padded = 1 << max(slots - 1, 0).bit_length()
    whole = np.zeros((rows, padded), dtype=np.bool_)
    whole[:, :slots] = idle
    block = whole.astype(np.int64)
    width = 2
    while width <= padded:
        full = whole.reshape(rows, padded // width, width).all(axis=2)
        block[np.repeat(full, width, axis=1)] = width
        width *= 2
    return block[:, :slots]
