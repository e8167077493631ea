"""Shoal's policy on nodes of equal GPUs: weights from speed and remaining work, sizes, then places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.allot import Contender, Nodes, free_gpus, packed
from shoal.schedule.sizing.choose import Demand, choose
from shoal.schedule.sizing.curves import Curves, concave, size_grid
from shoal.schedule.sizing.estimate import attained_weights
from shoal.schedule.sizing.seen import Seen
from shoal.schedule.sizing.weights import weights

__all__ = ["Elastic"]

Ints = NDArray[np.int64]


_RESTARTS = 20 / 3
"""A decision is thought to hold for so many restarts at least, or none would pay where they take long:
as many as there are of 30 s, for which the figures were chosen, in 200 s."""


class Elastic:
    """`information` says what it is told of a job's work: none, declared, or profiles beside.

    `horizon`: seconds for which a decision is thought to hold, where restarts are short. The figures
    were chosen on one of the published lists of jobs. `live`: somebody may ask again at any time, which
    is to change nothing.
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
        total = sum(capacity)
        grid = size_grid(max(capacity), total)
        grid = np.union1d(grid, np.array([job.least for job in jobs], dtype=np.int64))
        return self.chosen(Seen.of(jobs, grid, max(capacity)), total)

    def chosen(self, seen: Seen, capacity: int) -> Ints:
        """The same, from arrays."""
        if seen.least.max() > 1 and seen.least.sum() > capacity:
            raise ValueError(f"{seen.least.sum()} GPUs are needed, and there are {capacity}")
        curves = whole = concave(seen.grid, seen.allowed).of(seen.row)
        if seen.declared:
            remaining = seen.remaining
            order = np.argsort(-remaining, kind="stable")
            if seen.possible is not seen.allowed:
                whole = concave(seen.grid, seen.possible).of(seen.row)
            weight = weights(whole, order.tolist(), capacity, self._patience)
        else:
            remaining = np.full(len(seen.row), np.inf)
            weight = attained_weights(seen.attained, seen.submitted)
        demand = Demand(
            curves=_from_least(curves, seen.least),
            weight=weight,
            current=seen.current,
            remaining=remaining,
            restart=seen.restart,
            logarithmic=not seen.declared,
        )
        horizon = self._horizon
        if not self._live:  # who lives says for how long a decision holds
            horizon = max(horizon, _RESTARTS * float(np.median(seen.restart)))
        return choose(demand, capacity, horizon, steady=self._live)


def _from_least(curves: Curves, leasts: Ints) -> Curves:
    """No job has less than its least, and that it may have, whatever it gains."""
    enough = curves.grid >= leasts[:, None]
    return replace(curves, reached=(curves.reached & enough) | (curves.grid == leasts[:, None]))
