"""Sizes that make the most of the weights: GPUs go, step by step, where they add the most each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.sizing.curves import Curves

__all__ = ["grant"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def grant(curves: Curves, weight: Floats, capacity: int) -> Ints:
    """The size of each job, (m,), 0 where there is not even the smallest left.

    Everybody gets the smallest size first, the greatest weight before the others; then the steps from
    one size worth having to the next, the densest gain first. A step that no longer fits ends its job's
    growth.
    """
    smallest = int(curves.grid[0])
    sizes = np.zeros(len(weight), dtype=np.int64)
    first = np.argsort(-weight, kind="stable")[: capacity // smallest]
    sizes[first] = smallest
    left = capacity - smallest * len(first)
    jobs, to, gain = _steps(curves, weight)
    running = sizes[jobs] > 0
    jobs, to, gain = jobs[running], to[running], gain[running]
    order = np.argsort(-gain, kind="stable")
    stopped: set[int] = set()
    for job, size in zip(jobs[order].tolist(), to[order].tolist(), strict=True):
        if left <= 0:
            break
        if job in stopped:
            continue
        more = size - int(sizes[job])
        if more <= 0:  # of two equally dense steps rounding may have put the second first
            continue
        if more > left:
            stopped.add(job)
            continue
        sizes[job] = size
        left -= more
    return sizes


def _steps(curves: Curves, weight: Floats) -> tuple[Ints, Ints, Floats]:
    """Job, size reached and gain per GPU of every step worth taking, job by job in ascending size."""
    jobs, at = np.nonzero(curves.reached)
    follows = np.zeros(len(jobs), dtype=np.bool_)
    follows[1:] = jobs[1:] == jobs[:-1]
    here, before = np.flatnonzero(follows), np.flatnonzero(follows) - 1
    size = curves.grid[at]
    rise = curves.speed[jobs[here], at[here]] - curves.speed[jobs[before], at[before]]
    gain = weight[jobs[here]] * rise / (size[here] - size[before])
    worth = rise > 0
    return jobs[here][worth], size[here][worth], gain[worth]
