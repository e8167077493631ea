"""Shoal's policy on nodes of equal GPUs: weights from speed and remaining work, sizes, then places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.allot import Contender, Nodes, free_gpus, packed
from shoal.schedule.sizing.curves import concave, size_grid
from shoal.schedule.sizing.damping import damp
from shoal.schedule.sizing.grant import grant
from shoal.schedule.sizing.weights import weights

__all__ = ["Elastic"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNSEEN_POWER = 0.7
"""A job that nothing is known of is taken to gain this power of its size."""


class Elastic:
    """`information` says what it is told of a job's work: none, declared, or profiles beside."""

    elastic = True

    def __init__(
        self, information: str = "declared", *, patience: float = -0.5, eager: float = 3.0
    ) -> None:
        self.information = information
        self._patience = patience
        self._eager = eager

    def allot(self, jobs: Sequence[Contender], capacity: Sequence[int], now: float) -> dict[str, Nodes]:
        """See `Allot`. Every job needs its `outlook`."""
        sizes = self._sizes(jobs, capacity)
        given = {job.name: job.nodes for job, n in zip(jobs, sizes, strict=True) if len(job.nodes) == n}
        free = free_gpus(capacity, given.values())
        changed = [position for position, job in enumerate(jobs) if job.name not in given]
        for position in sorted(changed, key=lambda position: -sizes[position]):
            nodes = packed(free, int(sizes[position])) if sizes[position] else ()
            given[jobs[position].name] = tuple(sorted(nodes or ()))
        return given

    def _sizes(self, jobs: Sequence[Contender], capacity: Sequence[int]) -> Ints:
        total = sum(capacity)
        grid = size_grid(max(capacity), total)
        possible, allowed, remaining = self._outlooks(jobs, grid, max(capacity))
        whole = concave(grid, possible)
        reachable = concave(grid, allowed)
        order = np.argsort(-remaining, kind="stable")
        weight = weights(whole, order.tolist(), total, self._patience)
        wanted = grant(reachable, weight, total)
        current = np.array([len(job.nodes) for job in jobs], dtype=np.int64)
        cost = np.array([job.restart for job in jobs])
        return damp(reachable, wanted, current, remaining, total, cost, self._eager)

    def _outlooks(
        self, jobs: Sequence[Contender], grid: Ints, gpus_per_node: int
    ) -> tuple[Floats, Floats, Floats]:
        """Speeds over the grid that are possible, and allowed now, (m, k); remaining seconds at the
        smallest size, (m,)."""
        nodes = -(-grid // gpus_per_node)
        possible = np.empty((len(jobs), len(grid)))
        allowed = np.empty_like(possible)
        remaining = np.full(len(jobs), np.nan)
        for row, job in enumerate(jobs):
            outlook = job.outlook
            assert outlook is not None, "only jobs with an outlook can be sized"
            if outlook.speeds is None:
                speed = grid.astype(np.float64) ** _UNSEEN_POWER
                most = 1
            else:
                speed = outlook.speeds(nodes, grid)
                most = outlook.most
                assert outlook.remaining is not None
                remaining[row] = outlook.remaining / speed[0]
            possible[row] = np.where(grid <= max(1, outlook.limit), speed, 0.0)
            allowed[row] = np.where(grid <= max(1, most), speed, 0.0)
        seen = remaining[~np.isnan(remaining)]
        remaining[np.isnan(remaining)] = np.median(seen) if len(seen) else 1.0
        return possible, allowed, remaining
