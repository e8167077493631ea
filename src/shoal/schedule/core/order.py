"""The next job: between queues by nominal, priority, class and share; inside one by class and usage."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from shoal.schedule.core.session import Session
from shoal.schedule.core.state import JobState
from shoal.schedule.core.usage import Usage

__all__ = ["Order"]

_Key = tuple[Any, ...]


class Order:
    """Pending jobs, one after the other. A start changes the keys of the queues on its path alone."""

    def __init__(self, session: Session, usage: Usage, pending: Sequence[JobState]) -> None:
        self.session, self.usage = session, usage
        self._lines: dict[int, dict[tuple[int, bool, str], list[tuple[Any, ...]]]] = {}
        for job in pending:
            row = job.row
            line = self._lines.setdefault(job.queue, {})
            key = (-row.priority, not job.present, row.user)
            heapq.heappush(line.setdefault(key, []), (row.waiting_since, row.name, job))
        self._heads: dict[int, tuple[_Key, JobState] | None] = {}
        self._best: dict[int, tuple[_Key, JobState] | None] = {}

    def next(self) -> JobState | None:
        """The next job, taken out of its line."""
        found = self._under(-1)
        if found is None:
            return None
        job = found[1]
        line = self._lines[job.queue]
        key = (-job.row.priority, not job.present, job.row.user)
        heapq.heappop(line[key])
        if not line[key]:
            del line[key]
        self._forget(job)
        return job

    def served(self, job: JobState) -> None:
        """What it started counts in usage and shares from now on."""
        slots = self.session.started.get(job.name) or self.session.grown.get(job.name)
        if slots:
            gpus = sum(float(job.loads[slot.role, -2]) for slot in slots)
            self.usage.add(job, gpus or float(len(slots)))
            self._forget(job)

    def _forget(self, job: JobState) -> None:
        for queue in (*self.session.queues.paths[job.queue], -1):
            self._best.pop(queue, None)
            self._heads.pop(queue, None)

    def _head(self, queue: int) -> tuple[_Key, JobState] | None:
        """The first job of a queue itself."""
        if queue not in self._heads:
            line = self._lines.get(queue)
            if not line:
                self._heads[queue] = None
            else:
                key = min(
                    line,
                    key=lambda each: (each[0], each[1], self._used(line[each][0][2]), line[each][0][:2]),
                )
                job: JobState = line[key][0][2]
                self._heads[queue] = (self._key(queue, job), job)
        return self._heads[queue]

    def _used(self, job: JobState) -> float:
        return self.usage.of(job)

    def _under(self, queue: int) -> tuple[_Key, JobState] | None:
        """The first job of a queue and those below it."""
        if queue in self._best:
            return self._best[queue]
        found = [self._head(queue)] if queue >= 0 else []
        for child in self.session.queues.children.get(queue, []):
            below = self._under(child)
            if below is not None:
                found.append((self._key(child, below[1]), below[1]))
        best = min((each for each in found if each is not None), key=_first, default=None)
        self._best[queue] = best
        return best

    def _key(self, queue: int, job: JobState) -> _Key:
        session = self.session
        queues = session.queues
        counts = job.missing() if job.present else job.gang()
        load = job.load(counts, new=not job.row.tasks)
        use = queues.stays[queue]
        inside = queues.within(queue, use + load, load > 0)
        share = queues.share(queue, use + load)
        row = job.row
        return (
            not inside,
            0 if inside else -queues.rows[queue].priority,
            -row.priority,
            not job.present,
            share,
            row.waiting_since,
            row.name,
        )


def _first(found: tuple[_Key, JobState]) -> _Key:
    return found[0]
