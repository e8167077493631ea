"""Tasks of failed nodes are placed again; those on other nodes stay exactly where they are.

Each failed node's tasks are a thing of their own: that there is no place for those of one does not keep
those of another from theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import Gang, Placement, Tasks
from shoal.schedule.placing.grow import grow
from shoal.schedule.placing.room import Room

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
    now = [tasks.only(~failed[tasks.node]) for tasks in placement]
    lost: dict[int, tuple[int, ...]] = {}
    for node in np.unique(np.concatenate([tasks.node for tasks in gone])).tolist():
        counts = tuple(int((tasks.node == node).sum()) for tasks in gone)
        again = grow(room, gang, now, counts, counts)
        if again is None:
            lost[node] = counts
        else:
            now = [
                Tasks.joined(old.shape, [old, new] if len(new) else [old])
                for old, new in zip(now, again, strict=True)
            ]
    return Mended(tuple(now), lost)
