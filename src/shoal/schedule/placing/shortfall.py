"""Why a gang does not fit, in numbers: how far each group gets, and what stops it.

Each group is looked at alone. Where every one would fit and the gang does not, it is because they need
the same room.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shoal.schedule.placing.asks import Domain, Gang, Group, Shape
from shoal.schedule.placing.fits import how_many
from shoal.schedule.placing.room import Room
from shoal.schedule.placing.scopes import best_count

__all__ = ["Shortfall", "Shortfalls", "shortfall"]

_Kind = tuple[Shape, int | None, int | None, Domain | None]


@dataclass(frozen=True)
class Shortfall:
    """Of one group."""

    wanted: int
    """Its minimum."""
    reachable: int
    """How many fit as close together as is required."""
    anywhere: int
    """How many fit at all."""
    empty: int
    """How many would fit if nothing ran."""
    nodes: int
    """How many nodes suit."""
    alone: tuple[int, ...]
    """How many would fit if each resource, and last the GPUs, were all that it asks for; as many as are
    told apart (`PLENTY` a node) of what it does not ask for."""


class Shortfalls:
    """Of one room: what is so of a shape is looked at once, until the room has changed."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._of: dict[_Kind, Shortfall] = {}
        self._mark = room.mark()

    def of(self, gang: Gang) -> tuple[Shortfall, ...]:
        """As `shortfall`."""
        if self._mark != self._room.mark():
            self._of.clear()
            self._mark = self._room.mark()
        found: list[Shortfall] = []
        for group in gang.groups:
            key = (group.shape, gang.reach.required, group.reach.required, gang.inside)
            if key not in self._of:
                self._of[key] = _of(self._room, gang, group)
            found.append(replace(self._of[key], wanted=group.minimum))
        return tuple(found)


def shortfall(room: Room, gang: Gang) -> tuple[Shortfall, ...]:
    """One for each group of the gang. For those who explain, not for the way there: it looks at every
    node once per resource. Raises ValueError for a mask or resources that there are not."""
    return tuple(_of(room, gang, group) for group in gang.groups)


def _of(room: Room, gang: Gang, group: Group) -> Shortfall:
    shape, table = group.shape, room.fits(group.shape)
    within = (best_count(table, reach, gang.inside) for reach in (gang.reach, group.reach))
    suits = room.nodes.suits[shape.suits].copy()
    if gang.inside is not None:
        suits &= room.topology.domain[gang.inside.level] == gang.inside.index
    ask = np.eye(len(shape.ask), dtype=np.int64) * np.array(shape.ask, dtype=np.int64)
    nothing = (0,) * len(shape.ask)
    lone = [Shape(tuple(row.tolist())) for row in ask]
    lone.append(Shape(nothing, shape.gpus, shape.share))
    free, slots = room.free[suits], room.slots[suits]
    total, whole = room.nodes.total[suits], room.nodes.slots[suits]
    return Shortfall(
        wanted=group.minimum,
        reachable=min(within),
        anywhere=table.capacity(gang.inside),
        empty=int(how_many(shape, total, whole).sum()),
        nodes=int(suits.sum()),
        alone=tuple(int(how_many(each, free, slots).sum()) for each in lone),
    )
