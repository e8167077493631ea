"""Free capacity of the nodes as arrays, and where tasks fit in it.

A group is placed on as few nodes as can be, each chosen as tight as can be: the node with the least
room that holds all that is left, else the one with the most. Ties go to the node that is listed first,
so equal input places equally.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.objects.job import Toleration
from shoal.objects.node import Taint
from shoal.schedule.snapshot import Hold, NodeRow, Shape

__all__ = ["Ints", "Place", "Room", "tolerates"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Place = tuple[str, tuple[str, ...]]
"""A node, and the device ids there for one task."""

_PLENTY = np.int64(2**40)


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations matches the taint."""
    return any(
        (not each.key or each.key == taint.key)
        and (each.value is None or each.value == taint.value)
        and (each.effect is None or each.effect == taint.effect)
        for each in tolerations
    )


class Room:
    """Mutable; `mark` and `rollback` take back what was placed since.

    `cpu`, `memory` and `gpu` are what is free on each node, in the order of `nodes`; less than nothing
    where more is held, or kept for somebody, than there is.
    """

    def __init__(self, nodes: Sequence[NodeRow], holds: Iterable[Hold] = ()) -> None:
        self.nodes = nodes
        self.at = {node.name: position for position, node in enumerate(nodes)}
        self.cpu: Ints = np.array([node.cpu for node in nodes], dtype=np.int64)
        self.memory: Ints = np.array([node.memory for node in nodes], dtype=np.int64)
        self.gpu: Ints = np.array([len(node.gpus) for node in nodes], dtype=np.int64)
        self._devices = [list(node.gpus) for node in nodes]
        self._lost: Bools = np.array([node.lost for node in nodes], dtype=np.bool_)
        self._usable: Bools = np.array(
            [node.ready and node.schedulable and not node.lost for node in nodes], dtype=np.bool_
        )
        self._matching: dict[tuple[object, object], Bools] = {}
        self._journal: list[tuple[int, Shape, tuple[str, ...]]] = []
        for hold in holds:
            self.occupy(hold)

    def matching(self, shape: Shape) -> Bools:
        """Nodes whose labels and taints suit the shape, usable now or not; lost ones do not count."""
        key = (shape.selector, shape.tolerations)
        mask = self._matching.get(key)
        if mask is None:
            mask = np.array([_suits(node, shape) for node in self.nodes], dtype=np.bool_) & ~self._lost
            self._matching[key] = mask
        return mask

    def usable(self, shape: Shape) -> Bools:
        """Matching nodes that answer and take new tasks."""
        return self.matching(shape) & self._usable

    def fits(self, shape: Shape, where: Bools) -> Ints:
        """How many tasks of the shape fit on each node; 0 outside of `where`."""
        most = np.full(len(self.nodes), _PLENTY, dtype=np.int64)
        for free, ask in ((self.cpu, shape.cpu), (self.memory, shape.memory), (self.gpu, shape.gpu)):
            if ask:
                np.minimum(most, free // ask, out=most)
        np.maximum(most, 0, out=most)  # a node that has shrunk may be over-full
        most[~where] = 0
        return most

    def place(self, shape: Shape, count: int, where: Bools) -> list[Place]:
        """Take room for up to `count` tasks; fewer places come back when no more fit."""
        places: list[Place] = []
        most = self.fits(shape, where)
        while len(places) < count and most.size:
            left = count - len(places)
            enough = np.flatnonzero(most >= left)
            position = int(enough[np.argmin(most[enough])]) if enough.size else int(np.argmax(most))
            here = min(left, int(most[position]))
            if here == 0:
                break
            places += self._take(position, shape, here)
            most[position] = 0
        return places

    def take_at(self, node: str, shape: Shape, devices: tuple[str, ...]) -> bool:
        """Take exactly this room; False, and nothing taken, when it is not free."""
        position = self.at.get(node)
        if position is None or not set(devices) <= set(self._devices[position]):
            return False
        free = (self.cpu[position], self.memory[position])
        if shape.cpu > free[0] or shape.memory > free[1]:
            return False
        self._subtract(position, shape, devices)
        return True

    def occupy(self, hold: Hold) -> None:
        """Count what the hold takes; where its devices are not known, none there is free."""
        position = self.at.get(hold.node)
        if position is None:
            return
        self.cpu[position] -= hold.cpu
        self.memory[position] -= hold.memory
        taken = set(hold.devices)
        self._devices[position] = [each for each in self._devices[position] if each not in taken]
        if hold.gpu > len(hold.devices):  # which ones is not known, so it could be any
            self._devices[position] = []
        self.gpu[position] = len(self._devices[position])

    def give_back(self, hold: Hold) -> None:
        """What the hold took is free again."""
        position = self.at.get(hold.node)
        if position is None:
            return
        self.cpu[position] += hold.cpu
        self.memory[position] += hold.memory
        self.gpu[position] += len(hold.devices)
        self._return(position, hold.devices)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Take back all that was placed since the mark."""
        while len(self._journal) > mark:
            position, shape, devices = self._journal.pop()
            self.cpu[position] += shape.cpu
            self.memory[position] += shape.memory
            self.gpu[position] += len(devices)
            self._return(position, devices)

    def _take(self, position: int, shape: Shape, count: int) -> list[Place]:
        places: list[Place] = []
        for _ in range(count):
            devices = tuple(self._devices[position][: shape.gpu])
            self._subtract(position, shape, devices)
            places.append((self.nodes[position].name, devices))
        return places

    def _subtract(self, position: int, shape: Shape, devices: tuple[str, ...]) -> None:
        self.cpu[position] -= shape.cpu
        self.memory[position] -= shape.memory
        self.gpu[position] -= len(devices)
        self._devices[position] = [each for each in self._devices[position] if each not in devices]
        self._journal.append((position, shape, devices))

    def _return(self, position: int, devices: tuple[str, ...]) -> None:
        if devices:
            free = {*self._devices[position], *devices}
            self._devices[position] = [each for each in self.nodes[position].gpus if each in free]


def _suits(node: NodeRow, shape: Shape) -> bool:
    labelled = all(node.labels.get(key) == value for key, value in shape.selector)
    return labelled and all(tolerates(shape.tolerations, taint) for taint in node.taints)
