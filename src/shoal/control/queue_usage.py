"""Use of queues: what each job holds and adds to its queue's numbers, kept up to date job by job, and
budgets. The scheduler, quotas, budgets and queue status all count with this.

An index holds its node's capacity while the allocation names it there, while the job controller has
given it to that node (it says so in the status before it starts anything), or while a task of it is
there that has not ended. A slot that was taken back is thus free only once its task has gone.

Ten thousand waiting jobs are not counted again because one of them changed: its old share is taken off
the queue's totals and its new one added.

The queue controller writes how much of each queue is waiting, running and in use. Jobs change far more
often than these numbers are read, so changes within a quarter of a second cost one write.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from shoal import faults
from shoal.cluster.base import Task
from shoal.control.cache import ObjectCache, changed_fields
from shoal.control.context import ControllerContext
from shoal.control.runner import Key, Source
from shoal.objects.elastic import own_roles
from shoal.objects.job import Job, Resources, share_of
from shoal.objects.job_rules import LARGEST_JOB
from shoal.objects.kinds import JOB, NODE, QUEUE
from shoal.objects.meta import Stamp
from shoal.objects.node import Node
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue, QueueStatus, QueueUsage
from shoal.objects.ranges import IndexMap, IndexSet
from shoal.schedule.core.usage import accrued
from shoal.schedule.snapshot import Hold

_LOG = logging.getLogger("shoal.control")


Rates = dict[str, float]
"""Resource to what is in use of it, in the units of budgets."""

_HOUR = 3600.0
_GIB = 2.0**30
WRITER = "queue"
_COALESCE_SECONDS = 0.25
_LEAST_USED = 1.0
"""Seconds: less is forgotten."""
_ACCOUNT_SECONDS = 10.0
"""Budgets are counted at least so often."""


def holds_of(job: Job, tasks: Iterable[Task]) -> tuple[Hold, ...]:
    """Everything that the job holds, by role, index and node."""
    there: dict[tuple[str, int, str], _Held] = {}
    resources = {role.name: role.resources for role in job.spec.roles}
    for slots in job.status.allocation.slots:
        indices = _listed(IndexSet.parse(slots.indices))
        share = len(slots.devices) // max(1, len(indices))
        for position, index in enumerate(indices):
            held = there[slots.role, index, slots.node] = _Held(slot=True)
            held.ask(resources.get(slots.role, _NOTHING))
            held.devices = list(slots.devices[position * share : (position + 1) * share])
    if job.status.phase not in ("Succeeded", "Failed", "Cancelled"):
        for role in job.status.roles:
            outcomes, nodes = IndexMap.parse(role.outcomes), IndexMap.parse(role.nodes)
            for index in _listed(nodes.indices):
                node = nodes[index]
                if index not in outcomes:
                    held = there.setdefault((role.name, index, node), _Held())
                    held.claimed = True
                    held.ask(resources.get(role.name, _NOTHING))
    for task in tasks:
        if task.phase != "Ended":
            spec = task.spec
            held = there.setdefault((spec.role, spec.index, spec.placement.node), _Held())
            held.add(task)
    return tuple(held.row(*key) for key, held in sorted(there.items()))


def _listed(indices: IndexSet) -> list[int]:
    """The indices one by one; a status may claim more of them than memory can hold.

    Raises:
        ValueError: there are more than any job may have.
    """
    if len(indices) > LARGEST_JOB:
        raise ValueError(f"a status names {len(indices)} indices; a job has {LARGEST_JOB} at most")
    return list(indices)


def task_holds(tasks: Iterable[Task]) -> tuple[Hold, ...]:
    """What tasks of jobs that are gone hold."""
    there: dict[tuple[str, int, str], _Held] = {}
    for task in tasks:
        if task.phase != "Ended":
            key = (task.spec.name, task.spec.index, task.spec.placement.node)
            there.setdefault(key, _Held()).add(task)
    return tuple(held.row(*key) for key, held in sorted(there.items()))


def release_reason(job: Job) -> str:
    """Why the job is to hold nothing; empty while it may."""
    if job.metadata.deleted:
        return "Deleted"
    if job.status.phase in ("Succeeded", "Failed", "Cancelled"):
        return "Finished"
    if job.spec.cancelled:
        return "Cancelled"
    return "Suspended" if job.spec.suspend else ""


def attained_service(job: Job, now: Stamp) -> float:
    """Up to now, over all of its attempts."""
    held = job.status.allocation
    return held.served + service_rate(job) * max(0.0, now - held.changed)


def service_rate(job: Job) -> float:
    """So much more each second, with the slots that it has."""
    own = own_roles(job.spec)
    gpus = {role.name: role.resources.gpu + share_of(role.resources) / 1000 for role in own}
    each = gpus if any(gpus.values()) else dict.fromkeys(gpus, 1.0)
    return sum(
        each.get(slots.role, 0.0) * len(IndexSet.parse(slots.indices))
        for slots in job.status.allocation.slots
    )


_NOTHING = Resources(cpu=CpuMillis(0))
"""Of a role that is no longer there."""


@dataclass
class _Held:
    slot: bool = False
    claimed: bool = False
    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    share: int = 0
    devices: list[str] = field(default_factory=list[str])
    live_cpu: int = 0
    live_memory: int = 0
    live: bool = False

    def ask(self, resources: Resources) -> None:
        self.cpu = max(self.cpu, int(resources.cpu))
        self.memory = max(self.memory, int(resources.memory or 0))
        self.gpu = max(self.gpu, resources.gpu)
        self.share = share_of(resources)

    def add(self, task: Task) -> None:
        spec = task.spec
        self.live = True
        self.live_cpu += int(spec.cpu)
        self.live_memory += int(spec.memory or 0)
        self.cpu = max(self.cpu, self.live_cpu)
        self.memory = max(self.memory, self.live_memory)
        self.devices += [each for each in spec.placement.devices if each not in self.devices]
        self.share = max(self.share, spec.placement.share)
        if not self.share:
            self.gpu = max(self.gpu, len(self.devices))

    def row(self, role: str, index: int, node: str) -> Hold:
        return Hold(
            role=role,
            index=index,
            node=node,
            devices=tuple(self.devices),
            cpu=self.cpu,
            memory=self.memory,
            gpu=self.gpu,
            share=self.share,
            slot=self.slot,
            live=self.live,
            claimed=self.claimed,
        )


@dataclass
class Totals:
    """A queue's jobs together. `numbers` counts pending, running, cpu, memory, gpu (whole devices),
    share (thousandths of shared ones) and nodes (of each job)."""

    numbers: Counter[str] = field(default_factory=Counter[str])
    waiting: dict[Key, Stamp] = field(default_factory=dict[Key, Stamp])
    """The pending jobs and when they were created."""
    users: dict[Key, tuple[str, float]] = field(default_factory=dict[Key, tuple[str, float]])
    """The jobs that hold something: user, and GPUs (tasks, where a job has none)."""

    @property
    def oldest(self) -> Stamp:
        """When the oldest pending job was created; 0: none waits."""
        return min(self.waiting.values(), default=0.0)

    @property
    def rates(self) -> dict[str, float]:
        """User to the GPUs (or tasks) that its jobs hold."""
        found: dict[str, float] = {}
        for user, weight in self.users.values():
            found[user] = found.get(user, 0.0) + weight
        return found


@dataclass(frozen=True)
class _Share:
    queue: str
    pending: bool
    created: Stamp
    numbers: dict[str, int]
    user: str
    weight: float


class QueueUsageIndex:
    """Listens to the caches from when it is made; `of` is called by one thread at a time."""

    def __init__(self, context: ControllerContext) -> None:
        self._jobs: ObjectCache[Job] = context.cache(JOB)
        self._nodes: ObjectCache[Node] = context.cache(NODE)
        self._tasks = context.tasks
        self._lock = threading.Lock()
        self._dirty: set[Key] = set()
        self._shares: dict[Key, _Share] = {}
        self._totals: dict[str, Totals] = {}
        self._jobs.on_change(self._job_changed)
        self._tasks.on_change(self._task_changed)
        self._nodes.on_change(self._node_changed)

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
        weight = numbers["gpu"] + numbers["share"] / 1000 or float(len(holds))
        return _Share(job.spec.queue, pending, job.metadata.created, numbers, job.user, weight)

    def _replace(self, key: Key, new: _Share | None) -> None:
        old = self._shares.pop(key, None)
        if old is not None:
            totals = self._totals[old.queue]
            totals.numbers.subtract(old.numbers)
            totals.waiting.pop(key, None)
            totals.users.pop(key, None)
        if new is not None:
            self._shares[key] = new
            totals = self._totals.setdefault(new.queue, Totals())
            totals.numbers.update(new.numbers)
            if new.pending:
                totals.waiting[key] = new.created
            if new.weight:
                totals.users[key] = (new.user, new.weight)

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


class UsageMeter:
    """Decayed usage of a queue's users, written when what they hold changes: in between it follows from
    what was written. After a restart, what is held now is taken to have been held since then."""

    def __init__(self) -> None:
        self._rates: dict[str, dict[str, float]] = {}

    def accrue(
        self, queue: Queue, rates: dict[str, float], half_life: float, now: Stamp
    ) -> tuple[dict[str, float], Stamp]:
        """User to usage up to the second value."""
        name, status = queue.metadata.name, queue.status
        known, at = status.decayed_usage, status.decayed_at
        before = self._rates.get(name, rates if at else {})
        self._rates[name] = rates
        if before == rates and known.keys() >= rates.keys():
            return known, at
        passed = now - at if at else 0.0
        users = known.keys() | before.keys() | rates.keys()
        made = {
            user: accrued(known.get(user, 0.0), before.get(user, 0.0), passed, half_life)
            for user in sorted(users)
        }
        kept = {user: used for user, used in made.items() if used >= _LEAST_USED or user in rates}
        return kept, now


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


class QueueController:
    """See the module's docstring; needs one thread."""

    name = "queue"

    def __init__(self, context: ControllerContext) -> None:
        self._policy = context.policy
        self._queues: ObjectCache[Queue] = context.cache(QUEUE)
        self._jobs: ObjectCache[Job] = context.cache(JOB)
        self._nodes: ObjectCache[Node] = context.cache(NODE)
        self._tasks = context.tasks
        self._guard = context.guard
        self._shares = QueueUsageIndex(context)
        self._spending = BudgetMeter()
        self._usage = UsageMeter()

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
        half_life = self._policy().rules.half_life_seconds
        used, used_at = self._usage.accrue(queue, totals.rates, half_life, now)
        new = msgspec.structs.replace(
            queue_status(queue, totals),
            spent=spent,
            accounted=accounted,
            decayed_usage=used,
            decayed_at=used_at,
        )
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
