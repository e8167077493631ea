"""DRAGON: who has waited too long takes workers from those that run; they grow back when all is quiet.

A pass does one thing. (1) Has the first in line waited `patience` seconds, running jobs are scaled down
towards their least, in queue order, until it fits at its least. (2) Otherwise the first waiting job
that fits starts. (3) After `quiet` seconds without either, running jobs are scaled up in queue order.

Its published defects are kept, for they are part of what is compared: a first in line that cannot be
made room for keeps everybody else from starting, and its attempts count as activity, so that nobody is
scaled up meanwhile; growth goes to the oldest, shrinking hits the oldest, whatever it costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.allot import Contender, Nodes, free_gpus, most_free_first

__all__ = ["Dragon"]


class Dragon:
    """Remembers when it last acted and who is waiting since when."""

    information = "none"
    elastic = False

    def __init__(self, *, patience: float = 30.0, quiet: float = 60.0, acted: float = 0.0) -> None:
        self._patience = patience
        self._quiet = quiet
        self._acted = acted

    @property
    def quiet_until(self) -> float:
        """Nobody is scaled up before."""
        return self._acted + self._quiet

    def allot(self, jobs: Sequence[Contender], capacity: Sequence[int], now: float) -> dict[str, Nodes]:
        """See `Allot`. Passes follow each other until one finds nothing to do."""
        given = {job.name: job.nodes for job in jobs if job.nodes}
        while self._pass(jobs, capacity, given, now):
            self._acted = now
        return given

    def _pass(
        self, jobs: Sequence[Contender], capacity: Sequence[int], given: dict[str, Nodes], now: float
    ) -> bool:
        waiting = [job for job in jobs if job.name not in given]
        running = [job for job in jobs if job.name in given]
        free = free_gpus(capacity, given.values())
        if waiting and now - waiting[0].submitted >= self._patience:
            return self._make_room(waiting[0], running, free, given, now)
        for job in waiting:
            nodes = most_free_first(free, job.least)
            if nodes is not None:
                given[job.name] = nodes
                return True
        if running and now - self._acted >= self._quiet:
            return self._grow(running, free, given)
        return False

    def _make_room(
        self,
        head: Contender,
        running: Sequence[Contender],
        free: list[int],
        given: dict[str, Nodes],
        now: float,
    ) -> bool:
        lacking = head.least - sum(free)
        spare = sum(len(given[job.name]) - job.least for job in running)
        if lacking > spare:
            self._acted = now
            return False
        for job in running:
            while lacking > 0 and len(given[job.name]) > job.least:
                given[job.name], gone = _without_one(given[job.name])
                free[gone] += 1
                lacking -= 1
        nodes = most_free_first(free, head.least)
        assert nodes is not None, "counted above"
        given[head.name] = nodes
        return True

    def _grow(self, running: Sequence[Contender], free: list[int], given: dict[str, Nodes]) -> bool:
        grown = False
        for job in running:
            more = min(job.size - len(given[job.name]), sum(free))
            nodes = most_free_first(free, more) if more > 0 else None
            if nodes:
                given[job.name] = tuple(sorted((*given[job.name], *nodes)))
                grown = True
        return grown


def _without_one(nodes: Nodes) -> tuple[Nodes, int]:
    """One worker goes from the node with the fewest, the last of equals: away from the main one."""
    last = min(reversed(dict.fromkeys(nodes)), key=nodes.count)
    at = len(nodes) - 1 - nodes[::-1].index(last)
    return nodes[:at] + nodes[at + 1 :], last
