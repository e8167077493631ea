"""Tasks of one shape dealt out to the nodes of a domain: close together, or evenly."""

from __future__ import annotations

import numpy as np

from shoal.schedule.placing.asks import Domain, Ints
from shoal.schedule.placing.choose import FAR, evenly, fewest
from shoal.schedule.placing.fits import Fits

__all__ = ["packed", "spread"]

Dealt = tuple[Ints, Ints]
"""Distinct nodes (m,), and how many tasks each gets, (m,)."""


def packed(table: Fits, scope: Domain | None, count: int, finest: int | None) -> Dealt:
    """`count` tasks, which fit in the scope, on few nodes; with `finest`, first of all in few domains
    of each level below the scope down to that one."""
    topology = table.topology
    below = 0 if scope is None else scope.level + 1
    if finest is None or below > finest or below >= topology.node_level:
        return _on_nodes(table, None if scope is None else topology.members(scope), count)
    ids = topology.inside(below, scope)
    room = table.per_domain(below)[ids]
    chosen, each = fewest(room, np.where(room > 0, room, FAR), min(count, int(room.sum())))
    parts = [
        packed(table, Domain(below, int(ids[at])), amount, finest)
        for at, amount in zip(chosen.tolist(), each.tolist(), strict=True)
    ]
    return _with_the_rest(table, scope, below, count, parts)


def spread(table: Fits, scope: Domain | None, count: int, level: int, *, few: bool = False) -> Dealt:
    """`count` tasks, which fit in the scope, evenly over its domains of `level`, few nodes in each; with
    `few`, over no more domains than it takes to hold them."""
    topology = table.topology
    if scope is not None and level <= scope.level:
        return packed(table, scope, count, None)
    ids = topology.inside(level, scope)
    room, at_nodes = table.per_domain(level)[ids], level == topology.node_level
    key = table.key[ids] if at_nodes else np.where(room > 0, room, FAR)
    here = min(count, int(room.sum()))
    if few:
        chosen = np.sort(fewest(room, key, here)[0])
        ids, room, key = ids[chosen], room[chosen], key[chosen]
    chosen, each = evenly(room, key, here)
    if at_nodes:
        return ids[chosen], each
    parts = [
        packed(table, Domain(level, int(ids[at])), amount, None)
        for at, amount in zip(chosen.tolist(), each.tolist(), strict=True)
    ]
    return _with_the_rest(table, scope, level, count, parts)


def _on_nodes(table: Fits, nodes: Ints | None, count: int) -> Dealt:
    if nodes is None:
        return fewest(table.count, table.key, count)
    chosen, each = fewest(table.count[nodes], table.key[nodes], count)
    return nodes[chosen], each


def _with_the_rest(
    table: Fits, scope: Domain | None, level: int, count: int, parts: list[Dealt]
) -> Dealt:
    """What the domains do not hold goes to the nodes that are in none of that level."""
    topology = table.topology
    left = count - sum(int(each.sum()) for _, each in parts)
    if left:
        nodes = topology.members(scope)
        parts = [*parts, _on_nodes(table, nodes[topology.domain[level, nodes] < 0], left)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([nodes for nodes, _ in parts]), np.concatenate([each for _, each in parts])
