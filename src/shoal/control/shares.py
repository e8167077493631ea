"""What each job adds to its queue's numbers, kept up to date job by job.

Ten thousand waiting jobs are not counted again because one of them changed: its old share is taken off
the queue's totals and its new one added.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal.cluster.base import Task
from shoal.control.cache import ObjectCache
from shoal.control.holdings import holds_of, task_holds
from shoal.control.rows import release_reason
from shoal.control.task_cache import TaskCache
from shoal.control.workqueue import Key
from shoal.objects.job import Job
from shoal.objects.meta import Stamp
from shoal.objects.node import Node
from shoal.schedule.snapshot import Hold

__all__ = ["Shares", "Totals"]

_LOG = logging.getLogger("shoal.control")


@dataclass
class Totals:
    """A queue's jobs together. `numbers` counts pending, running, cpu, memory, gpu (whole devices),
    share (thousandths of shared ones) and nodes (of each job)."""

    numbers: Counter[str] = field(default_factory=Counter[str])
    waiting: dict[Key, Stamp] = field(default_factory=dict[Key, Stamp])
    """The pending jobs and when they were created."""

    @property
    def oldest(self) -> Stamp:
        """When the oldest pending job was created; 0: none waits."""
        return min(self.waiting.values(), default=0.0)


@dataclass(frozen=True)
class _Share:
    queue: str
    pending: bool
    created: Stamp
    numbers: dict[str, int]


class Shares:
    """Listens to the caches from when it is made; `of` is called by one thread at a time."""

    def __init__(self, *, jobs: ObjectCache[Job], nodes: ObjectCache[Node], tasks: TaskCache) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._tasks = tasks
        self._lock = threading.Lock()
        self._dirty: set[Key] = set()
        self._shares: dict[Key, _Share] = {}
        self._totals: dict[str, Totals] = {}
        jobs.on_change(self._job_changed)
        tasks.on_change(self._task_changed)
        nodes.on_change(self._node_changed)

    def of(self, queue: str) -> Totals:
        """The totals of the queue's jobs now."""
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        lost = frozenset(node.metadata.name for node in self._nodes.all() if node.spec.lost)
        for key in dirty:
            job = self._jobs.get(key)
            self._replace(key, None if job is None else self._usable_share(job, lost))
        return self._totals.get(queue) or Totals()

    def _usable_share(self, job: Job, lost: frozenset[str]) -> _Share:
        try:
            return self._share(job, lost)
        except Exception as error:  # noqa: BLE001 - the scheduler reports it on the job; others count
            _LOG.warning("job %s counts with its tasks alone: %s", "/".join(job.key), error)
            return self._counted(job, task_holds(self._tasks.of_job(job.metadata.uid)), pending=False)

    def _share(self, job: Job, lost: frozenset[str]) -> _Share:
        tasks = self._tasks.of_job(job.metadata.uid)
        holds = [hold for hold in holds_of(job, tasks) if hold.node not in lost]
        return self._counted(job, holds, pending=not holds and not release_reason(job))

    def _counted(self, job: Job, holds: Sequence[Hold], *, pending: bool) -> _Share:
        numbers = {
            "pending": int(pending),
            "running": int(bool(holds)),
            "cpu": sum(hold.cpu for hold in holds),
            "memory": sum(hold.memory for hold in holds),
            "gpu": sum(hold.gpu for hold in holds),
            "share": sum(hold.share for hold in holds),
            "nodes": len({hold.node for hold in holds}),
        }
        return _Share(job.spec.queue, pending, job.metadata.created, numbers)

    def _replace(self, key: Key, new: _Share | None) -> None:
        old = self._shares.pop(key, None)
        if old is not None:
            totals = self._totals[old.queue]
            totals.numbers.subtract(old.numbers)
            totals.waiting.pop(key, None)
        if new is not None:
            self._shares[key] = new
            totals = self._totals.setdefault(new.queue, Totals())
            totals.numbers.update(new.numbers)
            if new.pending:
                totals.waiting[key] = new.created

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        job = new or old
        if job is not None:
            with self._lock:
                self._dirty.add(job.key)

    def _task_changed(self, old: Task | None, new: Task | None) -> None:
        task = new or old
        if task is not None:
            with self._lock:
                self._dirty.add((task.spec.namespace, task.spec.job))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if (old is not None and old.spec.lost) != (new is not None and new.spec.lost):
            with self._lock:
                self._dirty |= {job.key for job in self._jobs.all()}
