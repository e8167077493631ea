"""Shoal's policy on nodes of equal GPUs: weights from speed and remaining work, sizes, then places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.allot import Contender, Nodes, free_gpus, packed
from shoal.schedule.sizing.choose import Demand, choose
from shoal.schedule.sizing.curves import Curves, concave, every_size, size_grid
from shoal.schedule.sizing.estimate import attained_weights, expected
from shoal.schedule.sizing.weights import weights

__all__ = ["Elastic"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNSEEN_POWER = 0.7
"""A job that nothing is known of is taken to gain this power of its size."""


class Elastic:
    """`information` says what it is told of a job's work: none, declared, or profiles beside.

    `horizon`: seconds for which a decision is thought to hold. The figures were chosen on one of the
    published lists of jobs. `live`: somebody else places tasks, so that sizes need not be whole nodes,
    and may ask again at any time, which is to change nothing.
    """

    elastic = True

    def __init__(
        self,
        information: str = "declared",
        *,
        patience: float = -0.5,
        horizon: float = 200.0,
        live: bool = False,
    ) -> None:
        self.information = information
        self._patience = patience
        self._horizon = horizon
        self._live = live

    def allot(self, jobs: Sequence[Contender], capacity: Sequence[int], now: float) -> dict[str, Nodes]:
        """See `Allot`. Raises as `sizes` does."""
        sizes = self.sizes(jobs, capacity)
        given = {job.name: job.nodes for job, n in zip(jobs, sizes, strict=True) if len(job.nodes) == n}
        free = free_gpus(capacity, given.values())
        changed = [position for position, job in enumerate(jobs) if job.name not in given]
        for position in sorted(changed, key=lambda position: -sizes[position]):
            nodes = packed(free, int(sizes[position])) if sizes[position] else ()
            given[jobs[position].name] = tuple(sorted(nodes or ()))
        return given

    def sizes(self, jobs: Sequence[Contender], capacity: Sequence[int]) -> Ints:
        """How many GPUs each is to have, wherever they are. Every job needs its `outlook`. Raises
        ValueError where some need more than one GPU, and all together more than there are."""
        leasts = [job.least for job in jobs]
        if max(leasts) > 1 and sum(leasts) > sum(capacity):
            raise ValueError(f"{sum(leasts)} GPUs are needed, and there are {sum(capacity)}")
        grid = size_grid(max(capacity), sum(capacity))
        if self._live:
            largest = max(_limit(job) for job in jobs)
            grid = every_size(max(capacity), min(largest, sum(capacity)))
        grid = np.union1d(grid, np.array(leasts, dtype=np.int64))
        seen = _Seen.of(jobs, grid, max(capacity))
        if seen.remaining is not None:
            curves = concave(seen.grid, seen.allowed)
            order = np.argsort(-seen.remaining, kind="stable")
            whole = concave(seen.grid, seen.possible)
            weight = weights(whole, order.tolist(), sum(capacity), self._patience)
        else:
            curves = concave(seen.grid, seen.allowed)
            weight = attained_weights(seen.done, np.array([job.submitted for job in jobs]))
        demand = Demand(
            curves=_from_least(curves, np.array(leasts, dtype=np.int64)),
            weight=weight,
            current=np.array([len(job.nodes) for job in jobs], dtype=np.int64),
            remaining=np.full(len(jobs), np.inf) if seen.remaining is None else seen.remaining,
            restart=np.array([job.restart for job in jobs]),
            logarithmic=seen.remaining is None,
        )
        return choose(demand, sum(capacity), self._horizon, steady=self._live)


def _limit(job: Contender) -> int:
    assert job.outlook is not None, "only jobs with an outlook can be sized"
    return max(job.outlook.limit, job.least, len(job.nodes))


def _from_least(curves: Curves, leasts: Ints) -> Curves:
    """No job has less than its least, and that it may have, whatever it gains."""
    enough = curves.grid >= leasts[:, None]
    return replace(curves, reached=(curves.reached & enough) | (curves.grid == leasts[:, None]))


@dataclass(frozen=True)
class _Seen:
    """The jobs' outlooks as arrays over a grid of sizes."""

    grid: Ints
    possible: Floats
    """(m, k): speeds at sizes that a job can ever have, and"""
    allowed: Floats
    """(m, k): those that it may have now."""
    done: Floats
    """(m,): seconds of work at the smallest size, and"""
    remaining: Floats | None
    """(m,): what is left; None: nobody has declared it. Who has not is taken to have as much as a job
    in the middle, or as much as it has done."""

    @classmethod
    def of(cls, jobs: Sequence[Contender], grid: Ints, gpus_per_node: int) -> _Seen:
        nodes = -(-grid // gpus_per_node)
        possible = np.empty((len(jobs), len(grid)))
        allowed = np.empty_like(possible)
        done = np.zeros(len(jobs))
        remaining = np.full(len(jobs), np.nan)
        declared = False
        for row, job in enumerate(jobs):
            outlook = job.outlook
            assert outlook is not None, "only jobs with an outlook can be sized"
            declared |= outlook.remaining is not None
            speed, most = grid.astype(np.float64) ** _UNSEEN_POWER, 1
            if outlook.speeds is not None:
                speed, most = outlook.speeds(nodes, grid), outlook.most
                done[row] = outlook.done / speed[0]
                remaining[row] = expected(outlook) / speed[0]
            possible[row] = np.where(grid <= max(1, outlook.limit), speed, 0.0)
            allowed[row] = np.where(grid <= max(1, most), speed, 0.0)
        unknown = np.isnan(remaining)
        middle = np.median(remaining[~unknown]) if not unknown.all() else 1.0
        remaining[unknown] = np.maximum(middle, done[unknown])
        return cls(grid, possible, allowed, done, remaining if declared else None)
