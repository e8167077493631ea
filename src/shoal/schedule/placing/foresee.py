"""What would fit, found out by doing it and taking it back."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.schedule.placing.asks import Gang, Placement, Tasks
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Room

__all__ = ["biggest", "would_fit"]


def would_fit(room: Room, gang: Gang, gone: Iterable[Tasks] = ()) -> Placement | None:
    """Where the gang would be once these tasks have gone; None: not even then. The room is left as it
    is. Raises ValueError for tasks that were not there."""
    mark = room.mark()
    try:
        for tasks in gone:
            room.give_back(tasks)
        return place(room, gang)
    finally:
        room.rollback(mark)


def biggest(room: Room, gang: Gang, gone: Iterable[Tasks] = ()) -> tuple[int, ...]:
    """How many tasks each group of the gang would have, at most its maximum; all 0: it does not fit."""
    placed = would_fit(room, gang, gone)
    return tuple(map(len, placed)) if placed is not None else (0,) * len(gang.groups)
