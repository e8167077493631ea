"""How many tasks of a group would fit once others have gone: counted on their nodes alone.

Nothing is done to the room, so that to ask many times with one more gone, or one less, costs little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shoal.schedule.placing.asks import WHOLE, Gang, Shape, Tasks
from shoal.schedule.placing.fits import PLENTY
from shoal.schedule.placing.room import Room

__all__ = ["Prospect"]


class Prospect:
    """Of a gang of one group for which counting `says_all`, in a room that stays as it is."""

    def __init__(self, room: Room, gang: Gang) -> None:
        (group,) = gang.groups
        self._room, self._shape = room, group.shape
        self._need = max(group.minimum, gang.minimum)
        self._suits = room.nodes.suits[group.shape.suits]
        table = room.fits(group.shape)
        level = gang.reach.required if group.reach.required is None else group.reach.required
        self._domain = None if level is None else room.topology.domain[level]
        if level is None:
            self._within = np.array([table.total])
        else:
            self._within = table.per_domain(level)[: room.topology.sizes[level]].copy()
        """How many fit in each domain of the level that is required; where none is, in all."""
        self._most = int(self._within.max(initial=0))
        self._more: dict[int, int] = {}
        """By domain, since something has gone there."""
        self._nodes: dict[int, _Node] = {}

    @staticmethod
    def says_all(gang: Gang) -> bool:
        """Whether a gang has a place wherever so many of its tasks fit."""
        group = gang.groups[0]
        both = gang.reach.required is not None and group.reach.required is not None
        anywhere = gang.inside is None
        return len(gang.groups) == 1 and group.minimum > 0 and anywhere and not both

    def fits(self) -> bool:
        """Whether the gang has a place, with those gone that have."""
        found = (int(self._within[domain]) + more for domain, more in self._more.items())
        return max(self._most, *found, 0) >= self._need

    def change(self, placement: Iterable[Tasks], sign: int) -> None:
        """These have gone, or with -1 they are there again."""
        changed: dict[int, _Node] = {}
        for tasks in placement:
            ask, part = tasks.shape.ask, sign * tasks.shape.thousandths
            numbers: list[int] = tasks.node.tolist()
            slots: list[list[int]] = tasks.slots.tolist()
            for number, mine in zip(numbers, slots, strict=True):
                node = changed[number] = self._node(number)
                for k, amount in enumerate(ask):
                    node.free[k] += sign * amount
                for slot in mine:
                    node.slots[slot] += part
        for number, node in changed.items():
            domain = 0 if self._domain is None else int(self._domain[number])
            if domain >= 0 and self._suits[number]:
                before, node.count = node.count, _count(self._shape, node)
                self._more[domain] = self._more.get(domain, 0) + node.count - before

    def _node(self, number: int) -> _Node:
        node = self._nodes.get(number)
        if node is None:
            free: list[int] = self._room.free[number].tolist()
            slots: list[int] = self._room.slots[number].tolist()
            node = self._nodes[number] = _Node(free, slots)
            node.count = _count(self._shape, node)
        return node


@dataclass
class _Node:
    """What is free there, and how many tasks fit."""

    free: list[int]
    slots: list[int]
    count: int = 0


def _count(shape: Shape, node: _Node) -> int:
    """As `fits.how_many`, of one node."""
    most = min([PLENTY, *(free // ask for free, ask in zip(node.free, shape.ask, strict=True) if ask)])
    if shape.gpus:
        most = min(most, node.slots.count(WHOLE) // shape.gpus)
    elif shape.share:
        most = min(most, sum(max(slot, 0) // shape.share for slot in node.slots))
    return max(most, 0)
