"""Of which roles a gang is, where so many tasks of all roles together are its minimum, whichever they
are.

A job that holds something is of the roles that it has. One that waits is of those for which there is
room: role after role, as many as fit beside those before; other orders are tried where that is not
enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, permutations

from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.placing.asks import Placement, Tasks
from shoal.schedule.placing.grow import grow
from shoal.schedule.placing.room import Room

__all__ = ["composed"]

_ORDERS = 24
"""So many orders of roles are tried: all of four."""


def composed(asked: Asked, rooms: Sequence[Room]) -> Asked:
    """As it would fit in the first of these rooms in which it does; as it was where it does in none."""
    if not asked.open or asked.job.tasks or asked.job.reserved:
        return asked
    for room in rooms:
        counts = _fitting(asked, room)
        if counts is not None:
            return asked.of(counts)
    return asked


def _fitting(asked: Asked, room: Room) -> tuple[int, ...] | None:
    roles = asked.job.roles
    for order in islice(permutations(range(len(roles))), _ORDERS):
        mark = room.mark()
        found = _in_order(asked, room, order)
        room.rollback(mark)
        if found is not None and sum(found) >= asked.job.minimum:
            return found
    return None


def _in_order(asked: Asked, room: Room, order: Sequence[int]) -> tuple[int, ...] | None:
    """How many of each role, if they are placed in this order; None where one lacks its own minimum."""
    roles = asked.job.roles
    least = [role.minimum for role in roles]
    nobody = tuple(Tasks.none(shape) for shape in asked.shapes)
    there = _more(asked, room, nobody, least, least)
    if there is None:
        return None
    for role in order:
        left = min(asked.job.minimum - sum(map(len, there)), roles[role].maximum - len(there[role]))
        most = [left * (at == role) for at in range(len(roles))]
        there = _more(asked, room, there, [0] * len(roles), most) or there
    return tuple(map(len, there))


def _more(
    asked: Asked, room: Room, there: Placement, least: Sequence[int], most: Sequence[int]
) -> Placement | None:
    gang = asked.gang(asked.minimum, asked.maximum)
    found = grow(room, gang, there, least, most)
    if found is None:
        return None
    pairs = zip(asked.shapes, there, found, strict=True)
    return tuple(Tasks.joined(shape, [old, new]) for shape, old, new in pairs)
