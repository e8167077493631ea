"""Marginal gain: each further GPU goes where it saves the most of what is left."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.allot import Contender, Nodes, free_gpus, most_free_first

__all__ = ["Optimus"]


class Optimus:
    """Knows each job's remaining steps and how long a step takes at every size."""

    information = "oracle"
    elastic = False

    def allot(self, jobs: Sequence[Contender], capacity: Sequence[int], now: float) -> dict[str, Nodes]:
        """See `Allot`."""
        sizes = _sizes(jobs, sum(capacity))
        given = {job.name: job.nodes for job in jobs if job.nodes and len(job.nodes) == sizes[job.name]}
        free = free_gpus(capacity, given.values())
        for job in sorted(jobs, key=lambda job: sizes[job.name]):
            if sizes[job.name] and job.name not in given:
                nodes = most_free_first(free, sizes[job.name])
                assert nodes is not None, "no more was given out than there is"
                given[job.name] = nodes
        return given


def _sizes(jobs: Sequence[Contender], left: int) -> dict[str, int]:
    sizes = {job.name: 0 for job in jobs}
    running = jobs[:left]
    for job in running:
        sizes[job.name] = 1
    left -= len(running)
    gains = [_gain(job, 1) for job in running]
    while left > 0 and gains:
        best = max(range(len(gains)), key=gains.__getitem__)
        if gains[best] <= 0:
            break
        job = running[best]
        sizes[job.name] += 1
        gains[best] = _gain(job, sizes[job.name])
        left -= 1
    return sizes


def _gain(job: Contender, size: int) -> float:
    """Seconds saved by one more."""
    if size >= job.most:
        return 0.0
    return (job.step_seconds(size) - job.step_seconds(size + 1)) * job.steps_left()
