"""First come, first served, each at the size it asks for and to its end."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.allot import Contender, Nodes, Placing, free_gpus, packed

__all__ = ["Fifo"]


class Fifo:
    """`skip`: who does not fit is passed over. Without it nobody overtakes."""

    information = "none"
    elastic = False

    def __init__(self, *, skip: bool, placing: Placing = packed) -> None:
        self._skip = skip
        self._placing = placing

    def allot(self, jobs: Sequence[Contender], capacity: Sequence[int], now: float) -> dict[str, Nodes]:
        """See `Allot`."""
        given = {job.name: job.nodes for job in jobs if job.nodes}
        free = free_gpus(capacity, given.values())
        for job in jobs:
            if job.nodes:
                continue
            nodes = self._placing(free, job.size)
            if nodes is not None:
                given[job.name] = nodes
            elif not self._skip:
                break
        return given
