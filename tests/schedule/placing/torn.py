"""What always holds, checked from the totals and the tasks alone: nothing that was kept up is believed.

Each function returns sentences, one per breach; none is good. They cost a few passes over the tasks, so
that a running scheduler can afford them now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import Domain, Gang, Ints, Placement, Reach, Tasks
from shoal.schedule.placing.room import Nodes, Room
from shoal.schedule.placing.topology import Topology

__all__ = ["miscounted", "overcommitted", "torn"]


def overcommitted(nodes: Nodes, held: Iterable[Tasks]) -> list[str]:
    """Nodes of which the tasks take more than there is, of a resource or of one GPU."""
    free, slots = _left(nodes, held)
    wrong = [
        f"node {node} has {-free[node, resource]} too little of resource {resource}"
        for node, resource in np.argwhere(free < 0).tolist()
    ]
    over = (slots < 0) & (nodes.slots >= 0)
    missing = (slots < -1) & (nodes.slots < 0)
    wrong += [
        f"GPU {slot} of node {node} is given out {-slots[node, slot]} thousandths beyond what it has"
        for node, slot in np.argwhere(over).tolist()
    ]
    wrong += [f"node {node} has no GPU {slot}" for node, slot in np.argwhere(missing).tolist()]
    return wrong


def miscounted(room: Room, held: Iterable[Tasks]) -> list[str]:
    """Where the room's books differ from what these tasks leave."""
    free, slots = _left(room.nodes, held)
    wrong = [f"node {node} has other free resources" for node in _rows(free != room.free)]
    wrong += [f"node {node} has other free GPUs" for node in _rows(slots != room.slots)]
    idle = (room.slots == 1000).sum(axis=1)
    return wrong + [f"node {node} has other idle GPUs" for node in np.flatnonzero(idle != room.idle)]


def torn(nodes: Nodes, gang: Gang, placement: Placement) -> list[str]:
    """What a placement owes its gang: minimum, maximum, reach, nodes that suit, distinct GPUs."""
    wrong: list[str] = []
    if len(placement) != len(gang.groups):
        return [f"{len(placement)} groups are placed of {len(gang.groups)}"]
    for at, (group, tasks) in enumerate(zip(gang.groups, placement, strict=True)):
        if not group.minimum <= len(tasks) <= group.maximum:
            wrong.append(f"group {at} has {len(tasks)}, not {group.minimum} to {group.maximum}")
        if tasks.shape != group.shape:
            wrong.append(f"group {at} is placed with another shape")
        if not nodes.suits[group.shape.suits, tasks.node].all():
            wrong.append(f"group {at} is on a node that does not suit")
        ordered = np.sort(tasks.slots, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            wrong.append(f"a task of group {at} has one GPU twice")
        wrong += _too_far(nodes.topology, group.reach, tasks.node, f"group {at}")
    every = np.concatenate([tasks.node for tasks in placement])
    if len(every) < gang.minimum:
        wrong.append(f"the gang has {len(every)}, not {gang.minimum}")
    if gang.inside is not None and not _all_in(nodes.topology, gang.inside, every):
        wrong.append("the gang is not where it has to be")
    return wrong + _too_far(nodes.topology, gang.reach, every, "the gang")


def _left(nodes: Nodes, held: Iterable[Tasks]) -> tuple[Ints, Ints]:
    free = nodes.total.astype(np.int64)
    slots = nodes.slots.astype(np.int64)
    for tasks in held:
        np.subtract.at(free, tasks.node, tasks.shape.vector)
        np.subtract.at(slots, (tasks.node[:, None], tasks.slots), tasks.shape.thousandths)
    return free, slots


def _rows(differs: NDArray[np.bool_]) -> Sequence[int]:
    return np.flatnonzero(differs.any(axis=1)).tolist()


def _too_far(topology: Topology, reach: Reach, on: Ints, who: str) -> list[str]:
    if reach.required is None or not len(on):
        return []
    domains = topology.domain[reach.required, on]
    if domains[0] >= 0 and (domains == domains[0]).all():
        return []
    return [f"{who} is in more than one domain of level {reach.required}"]


def _all_in(topology: Topology, domain: Domain, on: Ints) -> bool:
    return bool((topology.domain[domain.level, on] == domain.index).all())
