"""How many tasks of a shape fit on each node and in each domain, kept up as nodes change.

Counted for all nodes once, when a shape is first seen; afterwards only for the nodes that something
was taken from or given back to. What is kept follows from the room alone, so that forgetting a table
changes no answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import WHOLE, Domain, Ints, Shape
from shoal.schedule.placing.choose import FAR

if TYPE_CHECKING:
    from shoal.schedule.placing.room import Room

__all__ = ["PLENTY", "Fits", "Tables", "how_many"]

PLENTY = 1 << 20
"""So many tasks of a shape fit on a node at most; more are not told apart."""
_MOST_TABLES = 256
"""Beyond that the one that was needed least lately is forgotten: a table takes 16 bytes a node."""


class Fits:
    """Of one shape. Arrays are to be read by others, not written."""

    def __init__(self, room: Room, shape: Shape) -> None:
        self.shape = shape
        self.topology = room.topology
        self.seen = 0
        self.shared = False
        self.count, self.key = _counted(room, shape, None)
        self.within: list[Ints] = []
        """Per level above the nodes: (d + 1,) tasks that fit in each domain; last, in none of them."""
        self._sum_up()

    def capacity(self, scope: Domain | None) -> int:
        """How many tasks fit in the domain, or anywhere."""
        if scope is None:
            return self.total
        return int(self.per_domain(scope.level)[scope.index])

    def per_domain(self, level: int) -> Ints:
        """How many tasks fit in each domain of the level, by its id."""
        return self.count if level == self.topology.node_level else self.within[level]

    def renew(self, room: Room, nodes: Ints | None) -> None:
        """Count anew on these nodes; None: on all."""
        count, key = _counted(room, self.shape, nodes)
        if nodes is None:
            self.count, self.key = count, key
            self._sum_up()
            return
        more = count - self.count[nodes]
        self.count[nodes], self.key[nodes] = count, key
        self.total += int(more.sum())
        for level, sums in enumerate(self.within):
            np.add.at(sums, self.topology.domain[level][nodes], more)

    def copy(self) -> Fits:
        """One that can be renewed without this one."""
        other = object.__new__(Fits)
        other.shape, other.topology = self.shape, self.topology
        other.seen, other.shared, other.total = self.seen, False, self.total
        other.count, other.key = self.count.copy(), self.key.copy()
        other.within = [sums.copy() for sums in self.within]
        return other

    def _sum_up(self) -> None:
        self.total = int(self.count.sum())
        topology = self.topology
        self.within = [
            np.bincount(np.where(row >= 0, row, size), weights=self.count, minlength=size + 1).astype(
                np.int64
            )
            for row, size in zip(topology.domain[:-1], topology.sizes[:-1], strict=True)
        ]  # whole numbers below 2**53: exact as float64


class Tables:
    """Those of all shapes seen lately, and which nodes have changed since each was renewed."""

    def __init__(self) -> None:
        self._of: dict[Shape, Fits] = {}
        self._changes: list[Ints] = []
        self._length = 0
        self._first = 0

    def changed(self, nodes: Ints) -> None:
        """What is free on these nodes is not what it was."""
        self._changes.append(nodes)
        self._length += len(nodes)

    def of(self, room: Room, shape: Shape) -> Fits:
        """The shape's table, up to date."""
        table = self._of.pop(shape, None)
        if table is None:
            table = self._made(room, shape)
        elif table.seen < self._first + len(self._changes):
            if table.shared:
                table = table.copy()
            self._catch_up(room, table)
        self._of[shape] = table  # last: the one that was needed most lately
        return table

    def copy(self) -> Tables:
        """For a copy of the room; tables are only copied when one side renews them."""
        for table in self._of.values():
            table.shared = True
        other = Tables()
        other._of = dict(self._of)
        other._changes, other._length = list(self._changes), self._length
        other._first = self._first
        return other

    def _made(self, room: Room, shape: Shape) -> Fits:
        if len(shape.ask) != room.free.shape[1]:
            raise ValueError(f"a shape of {len(shape.ask)} resources in a room of {room.free.shape[1]}")
        if shape.suits >= len(room.nodes.suits):
            raise ValueError(f"a shape for mask {shape.suits} in a room of {len(room.nodes.suits)}")
        if len(self._of) >= _MOST_TABLES:
            del self._of[next(iter(self._of))]
        table = Fits(room, shape)
        table.seen = self._first + len(self._changes)
        return table

    def _catch_up(self, room: Room, table: Fits) -> None:
        now = self._first + len(self._changes)
        behind = table.seen - self._first
        late = behind < 0
        new = [] if late else self._changes[behind:]
        if late or sum(map(len, new)) > room.topology.nodes // 2:
            table.renew(room, None)
        else:
            table.renew(room, new[0] if len(new) == 1 else np.unique(np.concatenate(new)))
        table.seen = now
        if self._length > 4 * room.topology.nodes + 1024:
            self._first, self._changes, self._length = now, [], 0


def how_many(shape: Shape, free: Ints, slots: NDArray[np.signedinteger[Any]]) -> Ints:
    """(m,) tasks of the shape that fit where so much is free (m, r), and of each GPU (m, g)."""
    most = _by_resources(shape, free)
    if shape.gpus:
        np.minimum(most, (slots == WHOLE).sum(axis=1) // shape.gpus, out=most)
    elif shape.share:
        np.minimum(most, (np.maximum(slots, 0) // shape.share).sum(axis=1), out=most)
    return most


def _by_resources(shape: Shape, free: Ints) -> Ints:
    most = np.full(len(free), PLENTY, dtype=np.int64)
    for resource, ask in enumerate(shape.ask):
        if ask:
            np.minimum(most, free[:, resource] // ask, out=most)
    return np.maximum(most, 0, out=most)


def _counted(room: Room, shape: Shape, nodes: Ints | None) -> tuple[Ints, Ints]:
    """Tasks that fit on each of the nodes, and how tight each node is: the least is to be used first."""
    rows = slice(None) if nodes is None else nodes
    most = _by_resources(shape, room.free[rows])
    rest = np.minimum(most, 0xFFFF)
    if shape.gpus:
        idle = room.idle[rows].astype(np.int64)
        np.minimum(most, idle // shape.gpus, out=most)
        key = (idle << 16) + rest
    elif shape.share:
        slots = room.slots[rows]
        holds = np.maximum(slots, 0) // shape.share
        np.minimum(most, holds.sum(axis=1), out=most)
        fullest = np.where(holds > 0, slots, WHOLE + 1).min(axis=1, initial=WHOLE + 1).astype(np.int64)
        key = (((fullest << 16) + room.idle[rows]) << 16) + rest
    else:
        # GPUs that no task can reach for want of cores are lost: a node without free ones comes first
        free = np.maximum(room.slots[rows], 0).sum(axis=1, dtype=np.int64)
        key = (free << 16) + rest
    most[~room.nodes.suits[shape.suits, rows]] = 0
    key[most == 0] = FAR
    return most, key
