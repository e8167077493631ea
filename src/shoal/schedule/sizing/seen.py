"""What is known of jobs' speeds and work, as arrays over a grid of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.allot import Contender
from shoal.schedule.sizing.estimate import expected

__all__ = ["Seen"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNSEEN_POWER = 0.7
"""A job that nothing is known of is taken to gain this power of its size."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Of m jobs over a grid of k sizes. Arrays are (m,) where no shape is said; jobs whose curves are
    equal may share a row of those."""

    grid: Ints
    """(k,), ascending."""
    row: Ints
    """Of the next two, which is its own."""
    possible: Floats
    """(u, k): speeds at sizes that a job can ever have, and"""
    allowed: Floats
    """(u, k): those that it may have now; the same array where that is all."""
    done: Floats
    """Progress made, and"""
    left: Floats
    """what is left of what was declared; nan: nobody said, or nothing of its speed is known."""
    declared: bool
    """Somebody said."""
    least: Ints
    """No job is to have less."""
    current: Ints
    """What it has; 0: nothing yet."""
    restart: Floats
    """Seconds that a change of size costs it."""
    submitted: Floats
    """Seconds."""

    @classmethod
    def of(cls, jobs: Sequence[Contender], grid: Ints, gpus_per_node: int) -> Seen:
        """From the outlook that each of them has."""
        nodes = -(-grid // gpus_per_node)
        possible = np.empty((len(jobs), len(grid)))
        allowed = np.empty_like(possible)
        done = np.zeros(len(jobs))
        left = np.full(len(jobs), np.nan)
        declared = False
        for row, job in enumerate(jobs):
            outlook = job.outlook
            assert outlook is not None, "only jobs with an outlook can be sized"
            declared |= outlook.remaining is not None
            speed, most = grid.astype(np.float64) ** _UNSEEN_POWER, 1
            if outlook.speeds is not None:
                speed, most = outlook.speeds(nodes, grid), outlook.most
                done[row] = outlook.done
                left[row] = np.nan if outlook.remaining is None else outlook.remaining
            possible[row] = np.where(grid <= max(1, outlook.limit), speed, 0.0)
            allowed[row] = np.where(grid <= max(1, most), speed, 0.0)
        return cls(
            grid=grid,
            row=np.arange(len(jobs)),
            possible=possible,
            allowed=allowed,
            done=done,
            left=left,
            declared=declared,
            least=np.array([job.least for job in jobs], dtype=np.int64),
            current=np.array([len(job.nodes) for job in jobs], dtype=np.int64),
            restart=np.array([job.restart for job in jobs]),
            submitted=np.array([job.submitted for job in jobs]),
        )

    @property
    def attained(self) -> Floats:
        """Seconds of work done, at the smallest size."""
        return self.done / self.possible[self.row, 0]

    @property
    def remaining(self) -> Floats:
        """Seconds of work left, at the smallest size. Who has not said is taken to have as much as a job
        in the middle, or as much as it has done."""
        found = expected(self.left, self.done) / self.possible[self.row, 0]
        unknown = np.isnan(found)
        middle = np.median(found[~unknown]) if not unknown.all() else 1.0
        return np.where(unknown, np.maximum(middle, self.attained), found)
