"""What each queue may still take: quotas against what its jobs hold, and who may use it at all.

A job counts with everything it holds, also tasks that are still on their way out: quota is free again
only when they have gone. Tasks on lost nodes do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal.schedule.snapshot import Hold, JobRow, QueueRow, Shape

__all__ = ["Denial", "Quotas"]

Denial = tuple[str, dict[str, Any]]
"""A code and its evidence."""

_RESOURCES = ("cpu", "memory", "gpu")


class Quotas:
    """Mutable: `count` what is held, then `charge` what is given out."""

    def __init__(self, queues: Iterable[QueueRow], lost: frozenset[str]) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._lost = lost
        self._used = {name: {"cpu": 0, "memory": 0, "gpu": 0, "jobs": 0} for name in self._queues}
        self._jobs: set[str] = set()

    def count(self, row: JobRow, holds: Iterable[Hold]) -> None:
        """Add these holds of the job."""
        for hold in holds:
            if hold.node not in self._lost:
                self.charge(row, hold, 1)

    def charge(self, row: JobRow, ask: Shape | Hold, tasks: int) -> None:
        """Add so many tasks of the job, and the job itself with its first."""
        used = self._used.get(row.queue)
        if used is None:
            return
        used["cpu"] += ask.cpu * tasks
        used["memory"] += ask.memory * tasks
        used["gpu"] += ask.gpu * tasks
        if row.uid not in self._jobs:
            self._jobs.add(row.uid)
            used["jobs"] += 1

    def barred(self, job: JobRow) -> Denial | None:
        """Why the job may not use its queue at all, None when it may."""
        queue = self._queues.get(job.queue)
        if queue is None:
            return "QueueMissing", {"queue": job.queue}
        if queue.namespaces and job.namespace not in queue.namespaces:
            return "NamespaceNotAllowed", {"queue": queue.name, "namespace": job.namespace}
        highest = queue.highest.get(job.namespace, queue.highest.get("*"))
        if highest is not None and job.priority > highest:
            evidence = {"queue": queue.name, "priority": job.priority, "highest": highest}
            return "PriorityTooHigh", evidence
        return None

    def exceeded(self, row: JobRow, asks: Iterable[tuple[Shape, int]]) -> Denial | None:
        """Which quota these tasks of the job would exceed, None when they do not."""
        queue = self._queues[row.queue]
        wanted = {"cpu": 0, "memory": 0, "gpu": 0, "jobs": int(row.uid not in self._jobs)}
        for shape, tasks in asks:
            for resource in _RESOURCES:
                wanted[resource] += getattr(shape, resource) * tasks
        for resource, ask in wanted.items():
            quota: int | None = getattr(queue, resource)
            used = self._used[row.queue][resource]
            if quota is not None and ask and used + ask > quota:
                numbers = {"quota": quota, "used": used, "asked": ask}
                return "QuotaExceeded", {"queue": queue.name, "resource": resource, **numbers}
        return None

    def room(self, row: JobRow, shape: Shape, tasks: int) -> int:
        """How many of the tasks the quota allows."""
        queue, used = self._queues[row.queue], self._used[row.queue]
        if row.uid not in self._jobs and queue.jobs is not None and used["jobs"] >= queue.jobs:
            return 0
        for resource in _RESOURCES:
            quota: int | None = getattr(queue, resource)
            ask: int = getattr(shape, resource)
            if quota is not None and ask:
                tasks = min(tasks, max(0, quota - used[resource]) // ask)
        return tasks
