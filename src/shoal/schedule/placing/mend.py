"""Tasks of failed nodes are placed again; those on other nodes stay exactly where they are.

Each failed node's tasks are a thing of their own: that there is no place for those of one does not keep
those of another from theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import Domain, Gang, Group, Placement, Tasks
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Room
from shoal.schedule.placing.topology import Topology

__all__ = ["Mended", "mend"]


@dataclass(frozen=True, eq=False)
class Mended:
    """Of one gang."""

    placement: Placement
    """What stays, then what has a new place; per group."""
    lost: dict[int, tuple[int, ...]]
    """Failed node to how many tasks of each group found no place."""


def mend(room: Room, gang: Gang, placement: Placement, failed: NDArray[np.bool_]) -> Mended:
    """Place again what a gang has on `failed` nodes (n,), which must not suit any more or be full.

    What was there is not given back: what a failed node holds is the caller's to say. A node's tasks,
    of all groups, find a place together or not at all: inside the domains that are required, near what
    stays.
    """
    gone = [tasks.only(failed[tasks.node]) for tasks in placement]
    pieces = [[tasks.only(~failed[tasks.node])] for tasks in placement]
    lost: dict[int, tuple[int, ...]] = {}
    for node in np.unique(np.concatenate([tasks.node for tasks in gone])).tolist():
        counts = tuple(int((tasks.node == node).sum()) for tasks in gone)
        if not _replaced(room, gang, counts, pieces):
            lost[node] = counts
    groups = zip(gang.groups, pieces, strict=True)
    return Mended(tuple(Tasks.joined(group.shape, mine) for group, mine in groups), lost)


def _replaced(room: Room, gang: Gang, counts: Sequence[int], pieces: list[list[Tasks]]) -> bool:
    """So many more tasks of each group are taken room for, and added to the pieces; or none."""
    mark = room.mark()
    grown: list[list[Tasks]] = []
    for at, count in enumerate(counts):
        if not count:
            continue
        again = place(room, _asked(room.topology, gang, at, count, pieces))
        if again is None:
            room.rollback(mark)
            for mine in grown:
                mine.pop()
            return False
        pieces[at].append(again[0])
        grown.append(pieces[at])
    return True


def _asked(
    topology: Topology, gang: Gang, at: int, count: int, pieces: Sequence[Sequence[Tasks]]
) -> Gang:
    """So many tasks of one group, next to where the others are."""
    group = gang.groups[at]
    inside = _narrower(
        gang.inside,
        _around(topology, gang.reach.required, pieces),
        _around(topology, group.reach.required, pieces[at : at + 1]),
    )
    near = None
    if gang.spread is None and gang.balanced is None:
        level = gang.reach.preferred if group.reach.preferred is None else group.reach.preferred
        closest = max(topology.node_level - 1, 0) if level is None else level
        near = _around(topology, closest, pieces) or near
    return Gang(
        (Group(group.shape, count, count, group.reach),),
        reach=gang.reach,
        spread=gang.spread,
        balanced=gang.balanced,
        inside=inside,
        near=near,
    )


def _around(topology: Topology, level: int | None, pieces: Sequence[Sequence[Tasks]]) -> Domain | None:
    """The domain of the level where the first of the tasks is."""
    for tasks in (tasks for mine in pieces for tasks in mine if len(tasks)):
        if level is not None and topology.domain[level, tasks.node[0]] >= 0:
            return Domain(level, int(topology.domain[level, tasks.node[0]]))
    return None


def _narrower(*domains: Domain | None) -> Domain | None:
    known = [domain for domain in domains if domain is not None]
    return max(known, key=lambda domain: domain.level, default=None)
