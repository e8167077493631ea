"""Why a gang does not fit, in numbers: how far each group gets, and what stops it.

Each group is looked at alone. Where every one would fit and the gang does not, it is because they need
the same room.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import Domain, Gang, Group, Ints, Shape
from shoal.schedule.placing.fits import PLENTY, how_many
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
    """Of one room: what is so of a shape is looked at once, until the room has changed; and what is so
    while nothing runs once and for all."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._empty: dict[Shape, Ints] = {}
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
                self._of[key] = _of(self._room, gang, group, self._empty)
            found.append(replace(self._of[key], wanted=group.minimum))
        return tuple(found)


def shortfall(room: Room, gang: Gang) -> tuple[Shortfall, ...]:
    """One for each group of the gang. For those who explain, not for the way there: it looks at every
    node once per resource. Raises ValueError for a mask or resources that there are not."""
    return tuple(_of(room, gang, group, {}) for group in gang.groups)


def _of(room: Room, gang: Gang, group: Group, empty: dict[Shape, Ints]) -> Shortfall:
    """`empty`: of each shape how many fit on which node if nothing runs, as far as that is known."""
    shape, table = group.shape, room.fits(group.shape)
    within = (best_count(table, reach, gang.inside) for reach in (gang.reach, group.reach))
    suits = room.nodes.suits[shape.suits].copy()
    if gang.inside is not None:
        suits &= room.topology.domain[gang.inside.level] == gang.inside.index
    if shape not in empty:
        empty[shape] = how_many(shape, room.nodes.total, room.nodes.slots)
    alone = [_by(ask, room.free[:, at]) for at, ask in enumerate(shape.ask)]
    if shape.share:
        alone.append(how_many(Shape((), share=shape.share), room.free[:, :0], room.slots))
    else:
        alone.append(_by(shape.gpus, room.idle))
    return Shortfall(
        wanted=group.minimum,
        reachable=min(within),
        anywhere=table.capacity(gang.inside),
        empty=int(empty[shape][suits].sum()),
        nodes=int(suits.sum()),
        alone=tuple(int(each[suits].sum()) for each in alone),
    )


def _by(ask: int, free: NDArray[np.signedinteger[Any]]) -> NDArray[np.signedinteger[Any]]:
    """(n,) tasks that fit by this alone."""
    if not ask:
        return np.full(len(free), PLENTY, dtype=np.int64)
    return np.clip(free // ask, 0, PLENTY)
