"""Where the tasks of a job are, as a scenario says it.

    running: [node0, node0]                        # the next free GPUs of each node, in order
    running: [{node: node0, gpus: [2, 3]}, node1]  # these GPUs
    running: {worker: [node0], ps: [node1]}        # by role, where there are several
    stopping: [node1]                              # told to stop, and still there

Tasks are numbered in the order in which they are named, those that stop behind the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shoal.schedule.cycle.rows import Node, Role, Task
from shoal.simulate.scenario.spot import Spot, Spots

__all__ = ["Slots", "read_tasks"]

_WHOLE = 1000


class Slots:
    """What of each node is taken, while tasks are read in the order of the file. Mutable."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self._free: dict[str, list[int]] = {}
        """Thousandths of each GPU, of nodes that somebody is on."""
        self._used: dict[tuple[str, str], int] = {}
        """By node and resource."""

    def take(self, spot: Spot, node: str, role: Role, said: tuple[int, ...] | None) -> tuple[int, ...]:
        """The GPUs of one task: those `said`, or the first with room. Raises `BadInput` where there is
        no room."""
        self._take_amounts(spot, node, role)
        free = self._free.setdefault(node, [_WHOLE] * self.nodes[node].gpus)
        needed = role.gpus or int(role.share > 0)
        each = _WHOLE if role.gpus else role.share
        if said is None:
            said = tuple(at for at, left in enumerate(free) if left >= each)[:needed]
            if len(said) < needed:
                raise spot.wrong(f"{node} has not as many free GPUs as its tasks are on")
        if len(said) != needed or len(set(said)) != needed:
            raise spot.wrong(f"a task of role {role.name} is on {needed} GPUs, not on {len(said)}")
        for at in said:
            if at >= len(free):
                raise spot.wrong(f"{node} has no GPU {at}; its {len(free)} are counted from 0")
            if free[at] < each:
                raise spot.wrong(f"GPU {at} of {node} is taken already")
            free[at] -= each
        return said

    def _take_amounts(self, spot: Spot, node: str, role: Role) -> None:
        for name, amount in role.amounts.items():
            used = self._used.get((node, name), 0) + amount
            if used > self.nodes[node].amounts.get(name, 0):
                raise spot.wrong(f"{node} has less {name} than its tasks hold")
            self._used[node, name] = used


def read_tasks(fields: Spots, roles: tuple[Role, ...], slots: Slots, key: str) -> tuple[Task, ...]:
    """What stands under `running` and `stopping`, or `reserved`, or `place`, of one job. Raises
    `BadInput`."""
    by_name = {role.name: role for role in roles}
    counts = dict.fromkeys(by_name, 0)
    tasks: list[Task] = []
    for which in (key, "stopping") if key == "running" else (key,):
        spot = fields.get(which)
        for role, place in () if spot is None else _by_role(spot, by_name):
            tasks.append(_task(place, role, counts[role.name], slots, which))
            counts[role.name] += 1
            if counts[role.name] > role.maximum:
                raise place.wrong(f"role {role.name} has at most {role.maximum} tasks")
    return tuple(tasks)


def _by_role(spot: Spot, roles: Mapping[str, Role]) -> Iterator[tuple[Role, Spot]]:
    if isinstance(spot.value, dict):
        for name, part in spot.fields(roles).parts.items():
            for place in part.one_or_more():
                yield roles[name], place
        return
    if len(roles) > 1:
        raise spot.wrong(f"of which role? {', '.join(roles)}: a map by role is expected")
    (role,) = roles.values()
    for place in spot.one_or_more():
        yield role, place


def _task(spot: Spot, role: Role, index: int, slots: Slots, which: str) -> Task:
    said: tuple[int, ...] | None = None
    preemptible = True
    where = spot
    if isinstance(spot.value, dict):
        fields = spot.fields(("node", "gpus", "preemptible", "index"))
        where = fields.need("node")
        gpus = fields.get("gpus")
        said = None if gpus is None else tuple(part.whole() for part in gpus.items())
        preemptible = fields.flag("preemptible", True)
        index = fields.whole_number("index", index)
    node = where.text()
    if node not in slots.nodes:
        raise where.wrong(f"there is no node {node}")
    return Task(
        role=role.name,
        index=index,
        node=node,
        gpus=slots.take(spot, node, role, said),
        stopping=which == "stopping",
        preemptible=preemptible,
    )
