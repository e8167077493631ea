"""The queue controller: how much of each queue is waiting, running and in use.

The numbers are those that the scheduler counts quotas with (`holdings`). Jobs change far more often
than anybody reads the numbers, so changes within a quarter of a second cost one write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoal.control.cache import ObjectCache
from shoal.control.changes import changed_fields
from shoal.control.holdings import holds_of
from shoal.control.lease import Guard
from shoal.control.rows import ending_of
from shoal.control.runner import Source
from shoal.control.tasks import TaskCache
from shoal.control.work import Key
from shoal.objects.job import Job
from shoal.objects.node import Node
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue, QueueStatus, QueueUsage

__all__ = ["QueueController", "Share", "queue_status"]

WRITER = "queue"
_COALESCE_SECONDS = 0.25


@dataclass(frozen=True)
class Share:
    """What one job adds to its queue."""

    pending: bool
    running: bool
    cpu: int
    memory: int
    gpu: int
    created: float


class QueueController:
    """See the module's docstring; one thread is enough."""

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

    def sources(self) -> Sequence[Source]:
        """Queues, and the jobs in them with their tasks."""
        return (
            Source(self._queues, lambda old, new: [(new or old).key]),
            Source(self._jobs, _queues_of, _COALESCE_SECONDS),
            Source(self._tasks, self._queue_of_task, _COALESCE_SECONDS),
            Source(self._nodes, self._on_node_lost, _COALESCE_SECONDS),
        )

    def reconcile(self, key: Key, now: float) -> float | None:
        """Bring one queue's status up to date."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        lost = frozenset(node.metadata.name for node in self._nodes.all() if node.spec.lost)
        shares = [
            _share(job, self._tasks, lost)
            for job in self._jobs.all()
            if job.spec.queue == queue.metadata.name
        ]
        fields = queue_status(queue, shares)
        if fields:
            self._guard.check()
            self._queues.patch_status(queue, writer=WRITER, fields=fields)
        return None

    def _queue_of_task(self, old: Any, new: Any) -> list[Key]:
        task = new or old
        if old is not None and new is not None and (old.phase == "Ended") == (new.phase == "Ended"):
            return []
        job = self._jobs.get((task.spec.namespace, task.spec.job))
        return [] if job is None else [("", job.spec.queue)]

    def _on_node_lost(self, old: Node | None, new: Node | None) -> list[Key]:
        if (old is not None and old.spec.lost) == (new is not None and new.spec.lost):
            return []
        return [queue.key for queue in self._queues.all()]


def queue_status(queue: Queue, shares: Sequence[Share]) -> dict[str, Any]:
    """The status fields (wire names) that differ from what the queue shows. Pure."""
    new = QueueStatus(
        pending=sum(share.pending for share in shares),
        running=sum(share.running for share in shares),
        usage=QueueUsage(
            cpu=CpuMillis(sum(share.cpu for share in shares)),
            memory=Bytes(sum(share.memory for share in shares)),
            gpu=sum(share.gpu for share in shares),
        ),
        oldest_pending=min((share.created for share in shares if share.pending), default=0.0),
        conditions=queue.status.conditions,
        observed_generation=queue.metadata.generation,
    )
    return changed_fields(queue.status, new)


def _share(job: Job, tasks: TaskCache, lost: frozenset[str]) -> Share:
    holds = [hold for hold in holds_of(job, tasks.of_job(job.metadata.uid)) if hold.node not in lost]
    return Share(
        pending=not holds and not ending_of(job),
        running=bool(holds),
        cpu=sum(hold.cpu for hold in holds),
        memory=sum(hold.memory for hold in holds),
        gpu=sum(hold.gpu for hold in holds),
        created=job.metadata.created,
    )


def _queues_of(old: Job | None, new: Job | None) -> list[Key]:
    return [
        ("", name) for name in dict.fromkeys(job.spec.queue for job in (old, new) if job is not None)
    ]
