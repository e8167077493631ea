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
_Line = tuple[int, bool, str]


class Order:
    """Pending jobs, one after the other. Keys are computed again where usage or a head has changed."""

    def __init__(self, session: Session, usage: Usage, pending: Sequence[JobState]) -> None:
        self.session, self.usage = session, usage
        self._lines: dict[int, dict[_Line, list[tuple[Any, ...]]]] = {}
        """By queue, then class and user: its jobs from the oldest on."""
        for job in pending:
            row = job.row
            line = self._lines.setdefault(job.queue, {})
            key = (-row.priority, not job.present, row.user)
            line.setdefault(key, []).append((row.waiting_since, row.name, job))
        self._fronts: dict[int, list[tuple[Any, ...]]] = {}
        """By queue: a heap of its lines by their first job. Usage only grows, so an entry with an old
        figure comes too early, and is put back."""
        for queue, lines in self._lines.items():
            for line in lines.values():
                line.sort(key=_oldest, reverse=True)
            front = [self._entry(queue, key) for key in lines]
            heapq.heapify(front)
            self._fronts[queue] = front
        self._keys: dict[tuple[int, int], tuple[bytes, bool, float]] = {}
        self._best: dict[int, tuple[_Key, JobState] | None] = {}
        self._above: dict[int, _Key] = {}
        """By queue: the key of its best job among its siblings, as usage was at `_seen`."""
        self._seen = -1

    def next(self) -> JobState | None:
        """The next job, taken out of its line."""
        if self._seen != self.session.queues.changes:
            self._above.clear()
            self._seen = self.session.queues.changes
        found = self._under(-1)
        if found is None:
            return None
        job = found[1]
        key = (-job.row.priority, not job.present, job.row.user)
        lines = self._lines[job.queue]
        front = self._fronts[job.queue]
        heapq.heappop(front)
        lines[key].pop()
        if lines[key]:
            heapq.heappush(front, self._entry(job.queue, key))
        self._forget(job)
        return job

    def served(self, job: JobState) -> None:
        """What it started counts in usage and shares from now on."""
        slots = self.session.started.get(job.name) or self.session.grown.get(job.name)
        if slots:
            gpus = sum(float(job.loads[slot.role, -2]) for slot in slots)
            self.usage.add(job, gpus or float(len(slots)))
            self._forget(job)

    def _entry(self, queue: int, line: _Line) -> tuple[Any, ...]:
        waiting, name, job = self._lines[queue][line][-1]
        return (line[0], line[1], self.usage.of(job), waiting, name, line, job)

    def _forget(self, job: JobState) -> None:
        for queue in (*self.session.queues.paths[job.queue], -1):
            self._best.pop(queue, None)
            self._above.pop(queue, None)

    def _head(self, queue: int) -> JobState | None:
        """The first job of a queue itself."""
        front = self._fronts.get(queue)
        while front:
            *_, line, job = front[0]
            if front[0][2] == self.usage.of(job):
                return job
            heapq.heapreplace(front, self._entry(queue, line))
        return None

    def _under(self, queue: int) -> tuple[_Key, JobState] | None:
        """The first job of a queue and those below it."""
        if queue in self._best:
            return self._best[queue]
        best: tuple[_Key, JobState] | None = None
        if queue >= 0 and (head := self._head(queue)) is not None:
            best = (self._key(queue, head), head)
        for child in self.session.queues.children.get(queue, []):
            below = self._under(child)
            if below is None:
                continue
            key = self._above.get(child)
            if key is None:
                key = self._above[child] = self._key(child, below[1])
            if best is None or key < best[0]:
                best = (key, below[1])
        self._best[queue] = best
        return best

    def _key(self, queue: int, job: JobState) -> _Key:
        queues = self.session.queues
        use = queues.stays[queue]
        row = job.row
        mark = use.tobytes()
        known = None if job.present else self._keys.get((queue, job.kind))
        if known is None or known[0] != mark:
            if job.present or row.tasks:
                load = job.load(job.missing() if job.present else job.gang(), new=not row.tasks)
            else:
                load = job.gang_load(new=True)
            inside = queues.within(queue, use + load, load > 0)
            known = (mark, inside, queues.share(queue, use + load))
            if not job.present and not row.tasks:
                self._keys[queue, job.kind] = known
        _, inside, share = known
        return (
            not inside,
            0 if inside else -queues.rows[queue].priority,
            -row.priority,
            not job.present,
            share,
            row.waiting_since,
            row.name,
        )


def _oldest(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    return entry[:2]
