"""In which domains a gang may be tried: the narrowest level first, there the fullest that fits first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import Domain, Ints, Reach, Shape
from shoal.schedule.placing.fits import Fits
from shoal.schedule.placing.room import Room
from shoal.schedule.placing.topology import Topology

__all__ = ["best_count", "scopes"]


def scopes(
    room: Room,
    shapes: Sequence[Shape],
    counts: Sequence[int],
    reach: Reach,
    bound: Domain | None,
    *,
    near: Domain | None = None,
    roomy: bool = False,
) -> Iterator[Domain | None]:
    """Domains inside `bound` where each of the groups would fit alone; None stands for everywhere.

    From the preferred level up to the required one; without that, up to `bound` itself. Of a level,
    first those next to `near`, then where the fewest tasks of the scarcest group fit: that is the
    fullest, and leaves the emptier ones whole; with `roomy` where the most fit. Ties: the first id.
    Whoever takes room between two of them gives it back before the next.
    """
    topology = room.topology
    widest = -1 if reach.required is None else reach.required
    narrowest = widest if reach.preferred is None else max(reach.preferred, widest)
    for level in range(narrowest, widest - 1, -1):
        tables = [room.fits(shape) for shape in shapes]
        if level < 0 or (bound is not None and level <= bound.level):
            if _lies_in_one(topology, bound, widest) and _enough(tables, counts, bound):
                yield bound
            return
        ids = topology.inside(level, bound)
        if 0 <= widest < level:
            ids = ids[topology.above(level, widest)[ids] >= 0]
        holds = np.stack([table.per_domain(level)[ids] for table in tables])
        fitting = np.flatnonzero((holds >= np.array(counts)[:, None]).all(axis=0))
        if not fitting.size:
            continue
        ids, scarce = ids[fitting], holds[_scarcest(tables, counts)][fitting]
        scarce = -scarce if roomy else scarce
        if near is None:
            first = int(scarce.argmin())
            yield Domain(level, int(ids[first]))
            if len(ids) == 1:
                continue
            order = np.argsort(scarce, kind="stable")[1:]
        else:
            order = np.lexsort((scarce, ~_next_to(topology, level, ids, near)))
        for position in order.tolist():
            yield Domain(level, int(ids[position]))


def best_count(table: Fits, reach: Reach, bound: Domain | None) -> int:
    """The most tasks of one group that fit inside what is required."""
    level = reach.required
    if level is None:
        return table.capacity(bound)
    if bound is not None and level <= bound.level:
        return table.capacity(bound) if _lies_in_one(table.topology, bound, level) else 0
    ids = table.topology.inside(level, bound)
    return int(table.per_domain(level)[ids].max(initial=0))


def _lies_in_one(topology: Topology, bound: Domain | None, level: int) -> bool:
    """Whether it is known in which domain of the level the bound is; a level below 0 asks nothing."""
    return level < 0 or (bound is not None and topology.widened(bound, level) is not None)


def _enough(tables: Sequence[Fits], counts: Sequence[int], bound: Domain | None) -> bool:
    return all(table.capacity(bound) >= count for table, count in zip(tables, counts, strict=True))


def _scarcest(tables: Sequence[Fits], counts: Sequence[int]) -> int:
    """The group that fits the fewest times, whole, into all there is."""
    times = [table.total / max(count, 1) for table, count in zip(tables, counts, strict=True)]
    return int(np.argmin(times))


def _next_to(topology: Topology, level: int, ids: Ints, near: Domain) -> NDArray[np.bool_]:
    """Which of the domains lie in `near`, or hold it."""
    if near.level <= level:
        return topology.above(level, near.level)[ids] == near.index
    return ids == topology.above(near.level, level)[near.index]
