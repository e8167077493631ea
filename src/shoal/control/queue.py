"""The queue controller: how much of each queue is waiting, running and in use.

The numbers are those that the scheduler counts quotas with (`allocated`). Jobs change far more often
than anybody reads the numbers, so changes within a quarter of a second cost one write.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal import faults
from shoal.cluster.base import Task
from shoal.control.cache import ObjectCache, changed_fields
from shoal.control.lease import Guard
from shoal.control.queue_usage import BudgetMeter, QueueUsageIndex, Totals
from shoal.control.runner import Source
from shoal.control.task_cache import TaskCache
from shoal.control.workqueue import Key
from shoal.objects.job import Job
from shoal.objects.node import Node
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue, QueueStatus, QueueUsage

__all__ = ["QueueController", "queue_status"]

WRITER = "queue"
_COALESCE_SECONDS = 0.25
_ACCOUNT_SECONDS = 10.0
"""Budgets are counted at least so often."""


class QueueController:
    """See the module's docstring; needs one thread."""

    name = "queue"

    def __init__(
        self,
        *,
        queues: ObjectCache[Queue],
        jobs: ObjectCache[Job],
        nodes: ObjectCache[Node],
        tasks: TaskCache,
        guard: Guard,
    ) -> None:
        self._queues = queues
        self._jobs = jobs
        self._nodes = nodes
        self._tasks = tasks
        self._guard = guard
        self._shares = QueueUsageIndex(jobs=jobs, nodes=nodes, tasks=tasks)
        self._spending = BudgetMeter()

    def sources(self) -> Sequence[Source]:
        """Queues, and what changes their jobs' shares."""
        return (
            Source(self._queues, _on_spec),
            Source(self._jobs, self._queues_of, _COALESCE_SECONDS),
            Source(self._tasks, self._queue_of_task, _COALESCE_SECONDS),
            Source(self._nodes, self._on_lost, _COALESCE_SECONDS),
        )

    def reconcile(self, key: Key, now: float) -> float | None:
        """Bring one queue's status up to date."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        totals = self._shares.of(queue.metadata.name)
        spent, accounted = self._spending.accrue(queue, self._queues.all(), self._shares.of, now)
        new = msgspec.structs.replace(queue_status(queue, totals), spent=spent, accounted=accounted)
        fields = changed_fields(queue.status, new)
        if fields:
            self._guard.check()
            self._queues.patch_status(queue, writer=WRITER, fields=fields)
            faults.point("server.queue.status.written")
        return _ACCOUNT_SECONDS if spent else None

    def _queue_of_task(self, old: Task | None, new: Task | None) -> list[Key]:
        task = new or old
        if task is None or (old and new and (old.phase == "Ended") == (new.phase == "Ended")):
            return []
        job = self._jobs.get((task.spec.namespace, task.spec.job))
        return [] if job is None else self._up([job.spec.queue])

    def _queues_of(self, old: Job | None, new: Job | None) -> list[Key]:
        return self._up([job.spec.queue for job in (old, new) if job is not None])

    def _up(self, names: Sequence[str]) -> list[Key]:
        """These queues, and those above them that pay."""
        found = dict.fromkeys(names)
        for name in names:
            seen = {name}
            queue = self._queues.get(("", name))
            while queue is not None and queue.spec.parent and queue.spec.parent not in seen:
                seen.add(queue.spec.parent)
                queue = self._queues.get(("", queue.spec.parent))
                if queue is not None and queue.spec.budgets:
                    found[queue.metadata.name] = None
        return [("", name) for name in found]

    def _on_lost(self, old: Node | None, new: Node | None) -> list[Key]:
        if (old is not None and old.spec.lost) == (new is not None and new.spec.lost):
            return []
        return [queue.key for queue in self._queues.all()]


def queue_status(queue: Queue, totals: Totals) -> QueueStatus:
    """What the queue's status is to show. Pure."""
    numbers = totals.numbers
    return QueueStatus(
        pending=numbers["pending"],
        running=numbers["running"],
        usage=QueueUsage(
            cpu=CpuMillis(numbers["cpu"]),
            memory=Bytes(numbers["memory"]),
            gpu=numbers["gpu"] + numbers["share"] / 1000,
        ),
        oldest_pending=totals.oldest,
        conditions=queue.status.conditions,
        observed_generation=queue.metadata.generation,
    )


def _on_spec(old: Queue | None, new: Queue | None) -> list[Key]:
    """Not on this controller's own writes."""
    if old is not None and new is not None and old.metadata.generation == new.metadata.generation:
        return []
    return [] if new is None else [new.key]
