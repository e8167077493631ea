"""Why a job cannot be placed: the first of a fixed list of codes that is true, with its numbers.

After the queue's own reasons (`quota`) come, in this order: NoNodes, NoMatchingNode, TooLarge,
WaitingForNode, PlacementRefused, InsufficientGpu / InsufficientMemory / InsufficientCpu. What never
will be comes before what is not yet, so that nobody waits for something that waiting cannot bring.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.schedule.quota import Denial
from shoal.schedule.room import Bools, Room, tolerates
from shoal.schedule.snapshot import JobRow, NodeRow, RoleForm, Shape

__all__ = ["Ask", "Reasons", "place_all"]

Ask = tuple[RoleForm, int]
"""So many tasks of a role."""

_RESOURCES = (("gpu", "Gpu"), ("memory", "Memory"), ("cpu", "Cpu"))
_MOST_NAMES = 5


class Reasons:
    """Finds reasons against one set of nodes."""

    def __init__(self, nodes: Sequence[NodeRow]) -> None:
        self._nodes = nodes
        self._empty: Room | None = None

    def find(self, row: JobRow, asks: list[Ask], together: list[Ask], room: Room, avoid: str) -> Denial:
        """Why these tasks do not fit into the room (which is as it was before they were tried),
        staying away from the node `avoid`. `together` are they and those that the job has already:
        what the whole cluster would have to hold."""
        if all(node.lost for node in self._nodes):
            return "NoNodes", {"lost": [node.name for node in self._nodes][:_MOST_NAMES]}
        for role, _ in asks:
            if not room.matching(role.shape).any():
                return "NoMatchingNode", self._mismatch(role)
        empty = self._empty = self._empty or Room(self._nodes)
        too_large = _misfit(empty, together, [empty.matching(role.shape) for role, _ in together])
        if too_large is not None:
            return "TooLarge", too_large[1]
        usable = [empty.usable(role.shape) for role, _ in together]
        if _misfit(empty, together, usable) is not None:
            return "WaitingForNode", self._waited_for(room, asks)
        where = [room.usable(role.shape) for role, _ in asks]
        missing = _misfit(room, asks, where)
        if missing is None:
            why = {"reason": row.avoid_reason, "message": row.avoid_message}
            return "PlacementRefused", {"node": avoid, "until": row.avoid_until, **why}
        return f"Insufficient{missing[0]}", missing[1]

    def _mismatch(self, role: RoleForm) -> dict[str, Any]:
        shape = role.shape
        there = [node for node in self._nodes if not node.lost]
        unlabelled = [
            node for node in there if any(node.labels.get(key) != value for key, value in shape.selector)
        ]
        taints = sorted(
            {
                taint.key
                for node in there
                for taint in node.taints
                if not tolerates(shape.tolerations, taint)
            }
        )
        return {
            "role": role.name,
            "nodes": len(there),
            "unlabelled": len(unlabelled),
            "selector": dict(shape.selector),
            "taints": taints[:_MOST_NAMES],
        }

    def _waited_for(self, room: Room, asks: list[Ask]) -> dict[str, Any]:
        closed = np.zeros(len(self._nodes), dtype=np.bool_)
        for role, _ in asks:
            closed |= room.matching(role.shape) & ~room.usable(role.shape)
        nodes = [node for node, shut in zip(self._nodes, closed, strict=True) if shut]
        silent = [node.name for node in nodes if not node.ready]
        cordoned = [node.name for node in nodes if node.ready]
        return {
            "silent": silent[:_MOST_NAMES],
            "cordoned": cordoned[:_MOST_NAMES],
            "nodes": len(nodes),
        }


def place_all(
    room: Room, asks: list[Ask], where: list[Bools]
) -> list[list[tuple[str, tuple[str, ...]]]] | None:
    """Room for all tasks of all roles, in the order of `asks`; None, and nothing taken, when there is
    not. The role that the fewest nodes suit is placed first, then the one that asks for most."""
    mark = room.mark()
    placed: list[list[tuple[str, tuple[str, ...]]]] = [[] for _ in asks]
    for position in _hardest_first(asks, where):
        role, count = asks[position]
        placed[position] = room.place(role.shape, count, where[position])
        if len(placed[position]) < count:
            room.rollback(mark)
            return None
    return placed


def _misfit(room: Room, asks: list[Ask], where: list[Bools]) -> tuple[str, dict[str, Any]] | None:
    """The resource that is short, and by how much; None when all fits. Takes nothing."""
    mark = room.mark()
    try:
        for position in _hardest_first(asks, where):
            role, count = asks[position]
            missing = _short(room, role, count, where[position])
            if missing is not None:
                return missing
            room.place(role.shape, count, where[position])
    finally:
        room.rollback(mark)
    return None


def _short(room: Room, role: RoleForm, count: int, where: Bools) -> tuple[str, dict[str, Any]] | None:
    fits = int(room.fits(role.shape, where).sum())
    if fits >= count:
        return None
    worst: tuple[int, str, dict[str, Any]] | None = None
    for resource, title in _RESOURCES:
        ask: int = getattr(role.shape, resource)
        if not ask:
            continue
        free = np.maximum(getattr(room, resource)[where], 0)
        alone = int((free // ask).sum())
        if worst is None or alone < worst[0]:
            evidence = {
                "role": role.name,
                "tasks": count,
                "fits": fits,
                "resource": resource,
                "asked": ask,
                "free": int(free.sum()),
                "largest": int(free.max(initial=0)),
                "nodes": int(where.sum()),
            }
            worst = (alone, title, evidence)
    if worst is None:  # asks for nothing, and still no node will have it
        return "Cpu", {"role": role.name, "tasks": count, "fits": fits, "resource": "cpu", "asked": 0}
    return worst[1], worst[2]


def _hardest_first(asks: list[Ask], where: list[Bools]) -> list[int]:
    def hardness(position: int) -> tuple[int, int, int, int, int]:
        shape: Shape = asks[position][0].shape
        return (int(where[position].sum()), -shape.gpu, -shape.memory, -shape.cpu, position)

    return sorted(range(len(asks)), key=hardness)
