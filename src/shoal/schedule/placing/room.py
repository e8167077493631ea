"""What is free on each node and on each of its GPUs; it is taken, given back, and rolled back.

One room belongs to one decision: it is not shared between threads. What runs is counted whatever there
is, so resources and GPUs may be less than nothing where a node has shrunk since its tasks came; nothing
more fits there then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import WHOLE, Ints, Shape, Tasks
from shoal.schedule.placing.fits import Fits, Tables
from shoal.schedule.placing.slots import shared_slots, whole_slots
from shoal.schedule.placing.topology import Topology

__all__ = ["Nodes", "Room"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Nodes:
    """What there is. Raises ValueError for arrays that do not match."""

    total: Ints
    """(n, r): of each resource, in any unit: thousandths of a core, bytes."""
    slots: NDArray[np.signedinteger[Any]]
    """(n, g): thousandths of each GPU, 1000 or less; -1 where there is no such slot."""
    topology: Topology
    suits: Bools
    """(k, n): the nodes that may be used, one row per distinct set of them."""

    def __post_init__(self) -> None:
        n = self.topology.nodes
        if self.total.ndim != 2 or self.slots.ndim != 2 or self.suits.ndim != 2:
            raise ValueError("total, slots and suits have two dimensions")
        if not len(self.total) == len(self.slots) == self.suits.shape[1] == n:
            raise ValueError(f"total, slots, suits and topology are not of the same {n} nodes")
        if self.slots.max(initial=0) > WHOLE:
            raise ValueError("a GPU has 1000 thousandths")


class Room:
    """Mutable. `free` (n, r) and `slots` (n, g) are to be read, not written, by others."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.topology = nodes.topology
        self.free: Ints = nodes.total.astype(np.int64)
        self.slots: NDArray[np.int32] = nodes.slots.astype(np.int32)
        self.idle: NDArray[np.int32] = (self.slots == WHOLE).sum(axis=1, dtype=np.int32)
        """(n,): GPUs of which nothing is taken."""
        self._tables = Tables()
        self._journal: list[_Change | _Less] = []

    @classmethod
    def of(cls, nodes: Nodes, free: Ints, slots: NDArray[np.int32]) -> Room:
        """As free as these say, (n, r) and (n, g), which are the room's from then on."""
        room = object.__new__(cls)
        room.nodes, room.topology = nodes, nodes.topology
        room.free, room.slots = free, slots
        room.idle = (slots == WHOLE).sum(axis=1, dtype=np.int32)
        room._tables = Tables()
        room._journal = []
        return room

    def copy(self) -> Room:
        """Another room, as free as this one, with a journal of its own."""
        other = object.__new__(Room)
        other.nodes, other.topology = self.nodes, self.topology
        other.free, other.slots, other.idle = self.free.copy(), self.slots.copy(), self.idle.copy()
        other._tables = self._tables.copy()
        other._journal = []
        return other

    def fits(self, shape: Shape) -> Fits:
        """How many tasks of the shape fit where, as things stand now. Raises ValueError for a shape that
        asks for other resources than the room has, or for a mask that there is not."""
        return self._tables.of(self, shape)

    def take(self, shape: Shape, nodes: Ints, counts: Ints) -> Tasks:
        """Room for `counts` (m,) tasks, one or more each, on distinct `nodes` (m,) where so many fit."""
        where = np.repeat(nodes, counts)
        if shape.slots:
            free = self.slots[nodes].astype(np.int64)
            if shape.gpus:
                slots = whole_slots(free, counts, shape.gpus)
            else:
                slots = shared_slots(free, counts, shape.share)
        else:
            slots = np.empty((len(where), 0), dtype=np.int64)
        tasks = Tasks(shape, where, slots)
        self._note(_Change(tasks, nodes, counts, -1))
        return tasks

    def holds(self, tasks: Tasks) -> bool:
        """Whether exactly these places are free, on nodes that suit."""
        self._check(tasks)
        nodes, counts = tasks.by_node
        ask = tasks.shape.vector
        short = (self.free[nodes] < counts[:, None] * ask) & (ask > 0)
        if short.any() or not self.nodes.suits[tasks.shape.suits, nodes].all():
            return False
        at, times = self._slots_of(tasks)
        return bool((self.slots.ravel()[at] >= times * tasks.shape.thousandths).all())

    def occupy(self, tasks: Tasks) -> None:
        """Count what runs there, whatever is free, also on a GPU that its node has not any more.

        Raises ValueError for tasks on none of the nodes, or beyond the last GPU that one may have.
        """
        self._check(tasks)
        if len(tasks):
            self._note(_Change(tasks, *tasks.by_node, -1))

    def give_back(self, tasks: Tasks) -> None:
        """What the tasks took is free again. Raises ValueError, and changes nothing, where more would be
        free than there is."""
        self._check(tasks)
        if not len(tasks):
            return
        change = _Change(tasks, *tasks.by_node, 1)
        self._apply(change, 1)
        nodes, there = change.nodes, self.nodes
        over = (self.free[nodes] > there.total[nodes]).any(axis=1)
        over |= (self.slots[nodes] > there.slots[nodes]).any(axis=1)
        if over.any():
            self._apply(change, -1)
            raise ValueError(f"more would be given back on node {nodes[over][0]} than was taken")
        self._journal.append(change)

    def less(self, nodes: Ints, amounts: Ints, parts: Ints) -> None:
        """On distinct `nodes` (m,) there is less for a while: `amounts` (m, r), and `parts` (m, g)
        thousandths of the GPUs. Negative numbers give it back."""
        self._note(_Less(nodes, amounts, parts, -1))

    def replace(self, nodes: Nodes, changed: Ints) -> None:
        """Other totals, GPUs or masks of the nodes at the positions `changed` (m,); what runs there is
        counted on. Masks may be added behind those that were known. Raises ValueError for other nodes
        or another topology: that is another room."""
        old = self.nodes
        if nodes.topology is not old.topology or nodes.slots.shape != old.slots.shape:
            raise ValueError("other nodes, or in other places: that takes another room")
        if nodes.total.shape != old.total.shape or len(nodes.suits) < len(old.suits):
            raise ValueError("no resource and no mask can go while the room is in use")
        self.free[changed] += nodes.total[changed] - old.total[changed]
        self.slots[changed] += nodes.slots[changed] - old.slots[changed]
        self.idle[changed] = (self.slots[changed] == WHOLE).sum(axis=1)
        self.nodes = nodes
        self._tables.changed(changed)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo all that was taken and given back since the mark."""
        while len(self._journal) > mark:
            change = self._journal.pop()
            self._apply(change, -change.sign)

    def settle(self) -> None:
        """Forget the journal: nothing before this is rolled back."""
        self._journal.clear()

    def _note(self, change: _Change | _Less) -> None:
        self._apply(change, change.sign)
        self._journal.append(change)

    def _apply(self, change: _Change | _Less, sign: int) -> None:
        nodes = change.nodes
        if isinstance(change, _Less):
            self.free[nodes] += sign * change.amounts
            self.slots[nodes] += np.int32(sign) * change.parts.astype(np.int32)
            self.idle[nodes] = (self.slots[nodes] == WHOLE).sum(axis=1)
            self._tables.changed(nodes)
            return
        tasks = change.tasks
        shape = tasks.shape
        if len(nodes) == 1:
            self._apply_on(int(nodes[0]), change, sign)
            return
        self.free[nodes] += (sign * change.counts)[:, None] * shape.vector
        if shape.slots:
            at = (tasks.node[:, None] * self.slots.shape[1] + tasks.slots).ravel()
            np.add.at(self.slots.reshape(-1), at, np.int32(sign * shape.thousandths))
            self.idle[nodes] = (self.slots[nodes] == WHOLE).sum(axis=1)
        self._tables.changed(nodes)

    def _apply_on(self, node: int, change: _Change, sign: int) -> None:
        """The same on one node, which is most of what is done, with no array made for it."""
        shape = change.tasks.shape
        self.free[node] += sign * int(change.counts[0]) * shape.vector
        if shape.slots:
            slots, part = self.slots[node], sign * shape.thousandths
            for slot in change.tasks.slots.ravel().tolist():
                slots[slot] += part
            self.idle[node] = np.count_nonzero(slots == WHOLE)
        self._tables.changed(change.nodes)

    def _slots_of(self, tasks: Tasks) -> tuple[Ints, Ints]:
        """Distinct slots, counted through all nodes, and how many of the tasks are on each."""
        at = tasks.node[:, None] * self.slots.shape[1] + tasks.slots
        return np.unique(at.ravel(), return_counts=True)

    def _check(self, tasks: Tasks) -> None:
        shape, (n, g) = tasks.shape, self.slots.shape
        if len(shape.ask) != self.free.shape[1]:
            raise ValueError(f"a shape of {len(shape.ask)} resources in a room of {self.free.shape[1]}")
        if tasks.slots.shape != (len(tasks.node), shape.slots):
            raise ValueError("tasks and their GPUs do not match")
        if not len(tasks):
            return
        first, last, least, most = tasks.bounds
        if first < 0 or last >= n:
            raise ValueError(f"a task is on none of the {n} nodes")
        if shape.slots and (least < 0 or most >= g):
            raise ValueError(f"a task is on none of the {g} GPUs that a node may have")


class _Change(NamedTuple):
    tasks: Tasks
    nodes: Ints
    counts: Ints
    sign: int


class _Less(NamedTuple):
    nodes: Ints
    amounts: Ints
    parts: Ints
    sign: int
