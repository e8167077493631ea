"""What is asked of the nodes, and the answer: where each task is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ANYWHERE",
    "WHOLE",
    "Domain",
    "Gang",
    "Group",
    "Ints",
    "Placement",
    "Reach",
    "Shape",
    "Tasks",
]

Ints = NDArray[np.int64]

WHOLE = 1000
"""Thousandths in one GPU."""


@dataclass(frozen=True)
class Shape:
    """What one task needs of its node. Raises ValueError for what no node can mean."""

    ask: tuple[int, ...]
    """Of each resource of the room, (r,), in the room's units."""
    gpus: int = 0
    """Whole GPUs, or"""
    share: int = 0
    """so many thousandths of one GPU."""
    suits: int = 0
    """Row of the room's masks: the nodes that may be used."""

    def __post_init__(self) -> None:
        if min(self.ask, default=0) < 0 or self.gpus < 0 or self.suits < 0:
            raise ValueError("a task asks for no less than nothing")
        if not 0 <= self.share < WHOLE or (self.gpus and self.share):
            raise ValueError("a task asks for whole GPUs, or for 1 to 999 thousandths of one")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.ask, self.gpus, self.share, self.suits))

    @cached_property
    def vector(self) -> Ints:
        """`ask`, (r,), not to be written."""
        return np.array(self.ask, dtype=np.int64)

    @cached_property
    def slots(self) -> int:
        """How many GPUs a task of this shape is on."""
        return self.gpus or int(self.share > 0)

    @cached_property
    def thousandths(self) -> int:
        """What it takes of each of them."""
        return WHOLE if self.gpus else self.share


@dataclass(frozen=True)
class Reach:
    """How far apart tasks may be, as levels of the topology: 0 is the widest.

    The level behind the last of the topology is the node itself.
    """

    required: int | None = None
    """All in one domain of this level, or not at all."""
    preferred: int | None = None
    """In one domain of this level if one holds them, else in as few as can be."""

    def __post_init__(self) -> None:
        if min(self.required or 0, self.preferred or 0) < 0:
            raise ValueError("a level of the topology is not below 0")


ANYWHERE = Reach()


@dataclass(frozen=True)
class Domain:
    """One domain of the topology."""

    level: int
    index: int


@dataclass(frozen=True)
class Group:
    """Tasks of one role."""

    shape: Shape
    minimum: int
    maximum: int
    reach: Reach = ANYWHERE
    """Of this group, inside what the gang allows."""

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum:
            raise ValueError("a group has at least its minimum and at most its maximum, both from 0 up")


@dataclass(frozen=True)
class Gang:
    """Groups that start together: each its minimum, and `minimum` in all, or nothing of any."""

    groups: tuple[Group, ...]
    minimum: int = 0
    reach: Reach = ANYWHERE
    """Of all groups together."""
    spread: int | None = None
    """Evenly over the domains of this level, and not as close together as can be."""
    balanced: int | None = None
    """Evenly over as few domains of this level as hold them."""
    inside: Domain | None = None
    """Nowhere else."""
    near: Domain | None = None
    """There if possible, then as few levels away as can be."""

    def __post_init__(self) -> None:
        if self.minimum > sum(group.maximum for group in self.groups):
            raise ValueError("a gang's minimum is more than its groups may have")
        if min(self.spread or 0, self.balanced or 0) < 0:
            raise ValueError("a level of the topology is not below 0")
        if sum(each is not None for each in (self.spread, self.balanced, self.near)) > 1:
            raise ValueError("a gang is spread, or balanced, or near something")


@dataclass(frozen=True, eq=False)
class Tasks:
    """Tasks of one shape, and where each is."""

    shape: Shape
    node: Ints
    """(k,) positions of nodes."""
    slots: Ints
    """(k, `shape.slots`) which GPUs of its node each task is on."""

    def __len__(self) -> int:
        return len(self.node)

    @cached_property
    def by_node(self) -> tuple[Ints, Ints]:
        """Distinct nodes, ascending, and how many of the tasks are on each."""
        if len(self.node) == 1:
            return self.node, np.ones(1, dtype=np.int64)
        nodes, counts = np.unique(self.node, return_counts=True)
        return nodes, counts

    @cached_property
    def bounds(self) -> tuple[int, int, int, int]:
        """The first and the last of its nodes, and of its GPUs, of which there are some."""
        slots = self.slots if self.slots.size else np.zeros(1, dtype=np.int64)
        return int(self.node.min()), int(self.node.max()), int(slots.min()), int(slots.max())

    @staticmethod
    def none(shape: Shape) -> Tasks:
        """No task."""
        return Tasks(shape, np.empty(0, np.int64), np.empty((0, shape.slots), np.int64))

    @staticmethod
    def joined(shape: Shape, pieces: list[Tasks]) -> Tasks:
        """All tasks of the pieces, in their order."""
        if not pieces:
            return Tasks.none(shape)
        if len(pieces) == 1:
            return pieces[0]
        node = np.concatenate([piece.node for piece in pieces])
        return Tasks(shape, node, np.concatenate([piece.slots for piece in pieces]))

    def only(self, which: NDArray[np.bool_]) -> Tasks:
        """Those where the mask (k,) is true."""
        return Tasks(self.shape, self.node[which], self.slots[which])


Placement = tuple[Tasks, ...]
"""Of a gang: the tasks of each group, in the order of its groups."""
