"""Jobs whose tasks are of different sizes, counted in one unit: the smallest task among them.

A unit of one GPU and some cores is counted by its GPU, one without GPUs by what it takes most of. That
is near enough to divide what there is; placing has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.placing.asks import WHOLE, Ints, Shape
from shoal.schedule.placing.fits import how_many
from shoal.schedule.placing.room import Room

__all__ = ["Unit", "smallest"]

_SLACK = 1e-9


class Unit:
    """One task of this shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._widths: dict[int, tuple[Shape, int]] = {}
        """By what the shape is: few are asked for again and again."""

    def parts(self, shape: Shape) -> float:
        """How many units a task of the shape takes."""
        own = _thousandths(self.shape)
        if own:
            return _thousandths(shape) / own
        pairs = zip(shape.ask, self.shape.ask, strict=True)
        return max((ask / mine for ask, mine in pairs if mine), default=1.0)

    def width(self, shape: Shape) -> int:
        """The same in whole units, at least one."""
        known = self._widths.get(id(shape))
        if known is None:
            whole = max(1, math.ceil(self.parts(shape) - _SLACK))
            known = self._widths[id(shape)] = (shape, whole)
        return known[1]

    def units(self, asked: Asked, counts: Sequence[int]) -> int:
        """Of so many tasks of each role, rounded: a helper beside large tasks is no unit."""
        pairs = zip(asked.shapes, counts, strict=True)
        return math.floor(sum(self.parts(shape) * count for shape, count in pairs) + 0.5)

    def free(self, room: Room) -> Ints:
        """(n,): how many fit on each node."""
        return room.fits(self.shape).count.copy()

    def per_node(self, room: Room) -> int:
        """How many an empty node holds, the largest that suits."""
        there = how_many(self.shape, room.nodes.total, room.nodes.slots)
        return int(np.where(room.nodes.suits[self.shape.suits], there, 0).max(initial=0))


def smallest(shapes: Iterable[Shape]) -> Unit:
    """Of one or more."""
    return Unit(min(shapes, key=lambda shape: (_thousandths(shape), shape.ask, shape.suits)))


def _thousandths(shape: Shape) -> int:
    return shape.share or WHOLE * shape.gpus
