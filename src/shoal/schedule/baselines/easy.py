"""EASY backfill: the first that does not fit is promised a start, and nobody may delay that one."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.allot import Contender, Nodes, Placing, free_gpus, packed

__all__ = ["Easy"]


class Easy:
    """Counts GPUs, as the original counts processors; needs how long each job will run."""

    information = "declared"
    elastic = False

    def __init__(self, *, placing: Placing = packed) -> None:
        self._placing = placing

    def allot(self, jobs: Sequence[Contender], capacity: Sequence[int], now: float) -> dict[str, Nodes]:
        """See `Allot`."""
        given = {job.name: job.nodes for job in jobs if job.nodes}
        ends = [(job.run_seconds(), len(job.nodes)) for job in jobs if job.nodes]
        free = free_gpus(capacity, given.values())
        promise: tuple[float, int] | None = None
        for job in jobs:
            if job.nodes or job.size > sum(capacity):
                continue
            if promise is None:
                nodes = self._placing(free, job.size)
                if nodes is None:
                    promise = _promise(job.size, sum(free), ends)
                    continue
            else:
                start, spare = promise
                seconds = job.run_seconds()
                short = seconds <= start
                if not short and job.size > spare:
                    continue
                nodes = self._placing(free, job.size)
                if nodes is None:
                    continue
                if not short:
                    promise = (start, spare - job.size)
            given[job.name] = nodes
            ends.append((job.run_seconds(), job.size))
        return given


def _promise(size: int, free: int, ends: list[tuple[float, int]]) -> tuple[float, int]:
    """In how many seconds so many GPUs will be free, and how many beside them then."""
    for seconds, count in sorted(ends):
        free += count
        if free >= size:
            return seconds, free - size
    return float("inf"), 0
