"""Two queues by attained service: who has had much steps behind who has had little."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.allot import Contender, Nodes, free_gpus, most_free_first

__all__ = ["Tiresias"]


class Tiresias:
    """A job is demoted, for good, once it has had `threshold` GPU seconds."""

    information = "none"
    elastic = False

    def __init__(self, threshold: float = 57_600.0) -> None:
        self._threshold = threshold

    def allot(self, jobs: Sequence[Contender], capacity: Sequence[int], now: float) -> dict[str, Nodes]:
        """See `Allot`."""
        left = sum(capacity)
        chosen: list[Contender] = []
        for job in sorted(jobs, key=lambda job: job.service >= self._threshold):
            needs = len(job.nodes) or job.size  # it keeps what it has
            if needs <= left:
                left -= needs
                chosen.append(job)
        given = {job.name: job.nodes for job in chosen if job.nodes}
        free = free_gpus(capacity, given.values())
        for job in chosen:
            if not job.nodes:
                nodes = most_free_first(free, job.size)
                assert nodes is not None, "counted above"
                given[job.name] = nodes
        return given
