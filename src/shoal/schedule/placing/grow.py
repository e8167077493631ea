"""More tasks for a gang that runs: in the domains that it is bound to, next to those that are there."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.placing.asks import Domain, Gang, Group, Placement, Tasks
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Room
from shoal.schedule.placing.topology import Topology

__all__ = ["grow"]


def grow(
    room: Room, gang: Gang, there: Sequence[Tasks], least: Sequence[int], most: Sequence[int]
) -> Placement | None:
    """Take room for `least` to `most` more tasks of each group; None, and nothing is taken, where one
    does not get its least.

    `there` are the tasks of each group that stay where they are; the gang's own minimum and maximum do
    not matter here. Groups are served in their order.
    """
    mark = room.mark()
    more: list[Tasks] = []
    for at, group in enumerate(gang.groups):
        now = [*more, *there]
        asked = Group(group.shape, least[at], most[at], group.reach)
        mine = there[at : at + 1]
        placed = place(room, _next_to(room.topology, gang, asked, now, mine)) if most[at] else ()
        if placed is None:
            room.rollback(mark)
            return None
        more.append(placed[0] if placed else Tasks.none(group.shape))
    return tuple(more)


def _next_to(
    topology: Topology, gang: Gang, group: Group, others: Sequence[Tasks], mine: Sequence[Tasks]
) -> Gang:
    """The group alone, bound to where the gang and its own tasks are."""
    inside = _narrower(
        gang.inside,
        _around(topology, gang.reach.required, others),
        _around(topology, group.reach.required, mine),
    )
    near = None
    if gang.spread is None and gang.balanced is None:
        level = gang.reach.preferred if group.reach.preferred is None else group.reach.preferred
        closest = max(topology.node_level - 1, 0) if level is None else level
        near = _around(topology, closest, [*mine, *others]) or gang.near
    return Gang(
        (group,),
        reach=gang.reach,
        spread=gang.spread,
        balanced=gang.balanced,
        inside=inside,
        near=near,
    )


def _around(topology: Topology, level: int | None, tasks: Sequence[Tasks]) -> Domain | None:
    """The domain of the level where the first of the tasks is."""
    for each in tasks:
        if level is not None and len(each) and topology.domain[level, each.node[0]] >= 0:
            return Domain(level, int(topology.domain[level, each.node[0]]))
    return None


def _narrower(*domains: Domain | None) -> Domain | None:
    known = [domain for domain in domains if domain is not None]
    return max(known, key=lambda domain: domain.level, default=None)
