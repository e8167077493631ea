"""Use of queues: what each job adds to its queue's numbers, kept up to date job by job, and budgets.

Ten thousand waiting jobs are not counted again because one of them changed: its old share is taken off
the queue's totals and its new one added.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shoal.cluster.base import Task
from shoal.control.allocated import holds_of, release_reason, task_holds
from shoal.control.cache import ObjectCache
from shoal.control.task_cache import TaskCache
from shoal.control.workqueue import Key
from shoal.objects.job import Job
from shoal.objects.meta import Stamp
from shoal.objects.node import Node
from shoal.objects.queue import Queue
from shoal.schedule.snapshot import Hold

__all__ = ["BudgetMeter", "QueueUsageIndex", "Totals", "below"]

_LOG = logging.getLogger("shoal.control")


Rates = dict[str, float]
"""Resource to what is in use of it, in the units of budgets."""

_HOUR = 3600.0
_GIB = 2.0**30


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


class QueueUsageIndex:
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


def below(queue: str, queues: Iterable[Queue]) -> set[str]:
    """The queue and all that hang from it."""
    children: dict[str, list[str]] = {}
    for each in queues:
        children.setdefault(each.spec.parent, []).append(each.metadata.name)
    found, left = {queue}, [queue]
    while left:
        new = [name for name in children.get(left.pop(), ()) if name not in found]
        found.update(new)
        left += new
    return found


class BudgetMeter:
    """Hours that a queue's budgets have cost: what its jobs, and those of queues below, hold over time.

    What is held is known at each change, so between two calls it was what it was at the first of them.
    After a restart, what is held now is taken to have been held since the last call.
    """

    def __init__(self) -> None:
        self._rates: dict[str, Rates] = {}

    def accrue(
        self, queue: Queue, queues: Iterable[Queue], of: Callable[[str], Totals], now: Stamp
    ) -> tuple[dict[str, float], Stamp]:
        """Budget to hours spent up to now, and since when the next are counted."""
        name, status = queue.metadata.name, queue.status
        if not queue.spec.budgets:
            self._rates.pop(name, None)
            return {}, 0.0
        rates = _rates([of(each) for each in sorted(below(name, queues))])
        before = self._rates.get(name, rates)
        self._rates[name] = rates
        hours = max(0.0, now - status.accounted) / _HOUR if status.accounted else 0.0
        spent = {
            budget.name: status.spent.get(budget.name, 0.0) + hours * before[budget.resource]
            for budget in queue.spec.budgets
        }
        return spent, now


def _rates(totals: Iterable[Totals]) -> Rates:
    numbers: list[Mapping[str, int]] = [each.numbers for each in totals]

    def total(resource: str) -> int:
        return sum(each.get(resource, 0) for each in numbers)

    return {
        "cpu": total("cpu") / 1000,
        "memory": total("memory") / _GIB,
        "gpu": total("gpu") + total("share") / 1000,
        "node": float(total("nodes")),
    }
