"""Many equal tasks that do not care about each other: one look at the nodes serves them all.

Where they are jobs of their own, each is to be where it would be if they came one after the other: the
tightest node stays the tightest until it is full, so that nodes are filled in the order in which they
are now. That is not so of shares of a GPU: the fullest may be full, and the next one emptier.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.placing.asks import Domain, Shape, Tasks
from shoal.schedule.placing.choose import tightest_first
from shoal.schedule.placing.room import Room
from shoal.schedule.placing.slots import slots_in_turn

__all__ = ["place_in_turn", "place_many"]


def place_many(room: Room, shape: Shape, count: int, inside: Domain | None = None) -> Tasks:
    """Take room for up to `count` tasks of the shape; fewer come back when no more fit.

    As many are placed as one by one: a task leaves room for exactly one less of its kind. The tightest
    nodes are filled first, whole.
    """
    room.topology.check(inside)
    table = room.fits(shape)
    if min(count, table.capacity(inside)) <= 0:
        return Tasks.none(shape)
    if inside is None:
        return room.take(shape, *tightest_first(table.count, table.key, count))
    nodes = room.topology.members(inside)
    chosen, each = tightest_first(table.count[nodes], table.key[nodes], count)
    return room.take(shape, nodes[chosen], each)


def place_in_turn(room: Room, shape: Shape, count: int) -> Tasks:
    """Take room for up to `count` tasks of the shape, in the order and in the places in which `place`
    puts gangs of one of them each. Raises ValueError for a shape of which that is not known: one that
    asks for a share of a GPU, or for nothing."""
    if shape.share or not (shape.gpus or any(shape.ask)):
        raise ValueError("only whole GPUs, or amounts, are taken in turn")
    table = room.fits(shape)
    nodes, each = tightest_first(table.count, table.key, min(count, table.total))
    slots = [
        slots_in_turn(room.slots[node], number, shape.gpus)
        for node, number in zip(nodes.tolist(), each.tolist(), strict=True)
    ]
    where = np.repeat(nodes, each)
    taken = np.concatenate(slots) if slots else np.empty(0, dtype=np.int64)
    tasks = Tasks(shape, where, taken.reshape(len(where), shape.slots))
    room.occupy(tasks)
    return tasks
