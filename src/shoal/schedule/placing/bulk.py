"""Many equal tasks that do not care about each other: one look at the nodes serves them all."""

from __future__ import annotations

from shoal.schedule.placing.asks import Domain, Shape, Tasks
from shoal.schedule.placing.choose import tightest_first
from shoal.schedule.placing.room import Room

__all__ = ["place_many"]


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
