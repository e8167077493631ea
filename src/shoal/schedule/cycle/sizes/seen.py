"""Rows that say how fast they are as arrays, in units of which a task takes one or more.

Below its minimum a job is taken to be as much slower as it is smaller: no job has so few. Beyond the end
of its curve nothing is gained. Equal curves are looked at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.cycle.sizes.members import Member
from shoal.schedule.sizing.curves import every_size
from shoal.schedule.sizing.seen import Seen

__all__ = ["LEAST_RESTART_SECONDS", "curves", "seen"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_RESTART_SECONDS = 1.0
"""Nobody changes for less: what is known of speeds is not that exact."""

_Curve = tuple[tuple[float, ...], int, int, int]


def seen(members: Sequence[Member], widths: Sequence[int], per_node: int, capacity: int) -> Seen:
    """Of one or more. `widths`: units that a task of each takes; `per_node`: units of a node, and
    `capacity` of all that there is for them."""
    jobs = [member.asked.job for member in members]
    width = np.array(widths, dtype=np.int64)
    kinds: dict[_Curve, int] = {}
    row = [kinds.setdefault(_curve(*each), len(kinds)) for each in zip(members, widths, strict=True)]
    least = np.array([member.least for member in members], dtype=np.int64) * width
    current = np.array([member.held for member in members], dtype=np.int64) * width
    largest = max(int(least.max()), int(current.max()), max(map(_most, kinds)))
    grid = every_size(min(per_node, capacity), min(largest, capacity))
    grid = np.union1d(grid, least)
    speeds = curves(list(kinds), grid)
    work = [math.nan if job.work is None else job.work - job.done for job in jobs]
    return Seen(
        grid=grid,
        row=np.array(row, dtype=np.int64),
        possible=speeds,
        allowed=speeds,
        done=np.array([job.done for job in jobs]),
        left=np.array(work),
        declared=any(job.work is not None for job in jobs),
        least=least,
        current=current,
        restart=np.maximum([job.restart_seconds for job in jobs], LEAST_RESTART_SECONDS),
        submitted=np.array([job.created for job in jobs], dtype=np.float64),
    )


def curves(kinds: Sequence[_Curve], grid: Ints) -> Floats:
    """Speeds at so many units, (u, k), of u curves: speeds with 1, 2, ... tasks, the minimum and maximum
    of these, and the units of each. 0: so many it cannot have."""
    table = np.zeros((len(kinds), max(len(speeds) for speeds, *_ in kinds)))
    for at, (speeds, *_) in enumerate(kinds):
        table[at, : len(speeds)] = speeds
    known, least, maximum, width, most = np.array(
        [(len(kind[0]), *kind[1:], _most(kind)) for kind in kinds], dtype=np.int64
    ).T[:, :, None]
    # the first task may be a part of itself, for a curve begins with one unit
    part = np.minimum(grid / width, 1.0)
    tasks = np.clip(grid // width, 1, maximum)
    at_least = np.minimum(np.maximum(tasks, least), known)
    speed = np.take_along_axis(table, at_least - 1, axis=1)
    speed = np.where(tasks < least, speed * tasks / least, speed)
    return np.where(grid <= most, part * speed, 0.0)


def _curve(member: Member, width: int) -> _Curve:
    role = member.role
    return member.asked.job.speeds, max(1, role.minimum), role.maximum, width


def _most(kind: _Curve) -> int:
    """Units that it can have."""
    speeds, least, maximum, width = kind
    return width * min(maximum, max(len(speeds), least))
