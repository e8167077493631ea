"""The scheduler's snapshot, kept up to date row by row as the caches change.

A change marks its job; the next snapshot makes that job's row anew and leaves all others as they are.
Forms are shared by equal jobs and counted, so that none is kept longer than a job asks for it.

A job with a spec or status that cannot be used (indices that are no indices) is skipped, and so is one
that holds nothing and names a secret that does not exist: it has no row, `skipped` says why, and its
tasks count as used capacity. A node that cannot be decoded or used is not
ready and keeps what it holds; such a queue stays as it was seen last.
"""

from __future__ import annotations

import bisect
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shoal.cluster.base import Task
from shoal.control.cache import ObjectCache
from shoal.control.context import ControllerContext
from shoal.control.queue_usage import task_holds
from shoal.control.rows import form_of, job_row, node_row, queue_rows, usage_rows
from shoal.control.runner import Key
from shoal.objects.elastic import elastic_role
from shoal.objects.errors import Invalid
from shoal.objects.job import FINISHED, Job
from shoal.objects.job_rules import unknown_levels
from shoal.objects.kinds import JOB, NODE, QUEUE, SECRET
from shoal.objects.meta import Metadata
from shoal.objects.nearest import nearest
from shoal.objects.node import Node
from shoal.objects.queue import Queue
from shoal.objects.secret import Secret
from shoal.schedule.cycle import rows
from shoal.schedule.plan import Policy
from shoal.schedule.snapshot import Form, Hold, JobRow, NodeRow, Snapshot
from shoal.schedule.speed.learned import Slower, slower_with_more
from shoal.schedule.speed.watching import Look, Watching

_LOG = logging.getLogger("shoal.control")

Order = tuple[int, float, str, str]

UNUSABLE = "Unusable"
"""Code of a job that the scheduler leaves out because its spec or status makes no sense."""
SECRET_MISSING = "SecretMissing"
"""Code of a job that waits for a secret."""


class Skipped(NamedTuple):
    """A job without a row, and why, as `shoal.schedule.explain` takes it."""

    key: Key
    code: str
    evidence: Mapping[str, Any]


class SchedulerCache:
    """Listens to the caches from when it is made; `snapshot` is called by one thread at a time."""

    def __init__(self, context: ControllerContext, *, slower: Callable[[Job, Slower], None]) -> None:
        """`slower` is called once for each size that a job is held at, for more would slow it down."""
        self._jobs: ObjectCache[Job] = context.cache(JOB)
        self._queues: ObjectCache[Queue] = context.cache(QUEUE)
        self._nodes: ObjectCache[Node] = context.cache(NODE)
        self._secrets: ObjectCache[Secret] = context.cache(SECRET)
        self._tasks = context.tasks
        self._policy = context.policy
        self._levels = context.levels
        self._known_levels: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._dirty: set[tuple[Key, str]] = set()
        self._stale: set[str] = {"nodes", "queues"}
        self._rows: dict[Key, JobRow] = {}
        self._orders: list[Order] = []
        self._sorted: list[JobRow] = []
        self._forms = _Forms()
        self._watching = Watching()
        self._slower = slower
        self._said: dict[str, tuple[int, int]] = {}
        """By uid: with which slots it was said of it, and that it is fastest with so many tasks."""
        self._strangers: dict[str, tuple[Hold, ...]] = {}
        self._skipped: dict[str, Skipped] = {}
        """By uid: jobs without a row, and why."""
        self._acted = 0.0
        self._node_rows: tuple[NodeRow, ...] = ()
        self._unusable_nodes: dict[str, str] = {}
        self._queue_rows: tuple[rows.Queue, ...] = ()
        self._usage_rows: tuple[rows.UserUsage, ...] = ()
        self._jobs.on_change(self._job_changed)
        self._tasks.on_change(self._task_changed)
        self._nodes.on_change(self._mark("nodes"))
        self._queues.on_change(self._mark("queues"))
        self._secrets.on_change(self._secret_changed)

    def snapshot(self) -> tuple[Snapshot, bool]:
        """What is known now, and whether anything in it that a decision could turn on is new since
        the last call. That a task has started, or ended on a slot that stays, is not."""
        with self._lock:
            dirty, self._dirty = self._dirty, set()
            stale, self._stale = self._stale, set[str]()
        levels = self._levels()
        news = bool(stale) or levels != self._known_levels
        if levels != self._known_levels:
            dirty |= self._levels_changed()
        self._known_levels = levels
        try:
            if "nodes" in stale:
                self._node_rows = self._make_node_rows()
            if "queues" in stale:
                made = self._make_queue_rows()
                if made != self._queue_rows:  # the same rows stay the same object: usage changes often
                    self._queue_rows = made
                self._usage_rows = usage_rows(self._queues.all())
            policy = self._policy()
            for key, uid in sorted(dirty):
                news |= self._renew(key, uid, policy)
        except BaseException:
            with self._lock:
                self._dirty |= dirty
                self._stale |= stale
            raise
        snapshot = Snapshot(
            nodes=self._node_rows,
            levels=levels,
            queues=self._queue_rows,
            forms=self._forms.all(),
            jobs=tuple(self._sorted),
            strangers=tuple(hold for uid in sorted(self._strangers) for hold in self._strangers[uid]),
            usage=self._usage_rows,
            acted=self._acted,
        )
        return snapshot, news

    def unusable_nodes(self) -> dict[str, str]:
        """The nodes that cannot be made a row of, and why."""
        return dict(self._unusable_nodes)

    def skipped(self) -> dict[str, Skipped]:
        """The jobs that the last snapshot leaves out, by uid."""
        return dict(self._skipped)

    def _make_node_rows(self) -> tuple[NodeRow, ...]:
        self._unusable_nodes = {}
        rows = {node.metadata.name: self._node_row(node) for node in self._nodes.all()}
        unknown = [each.name for each in self._nodes.undecodable()]
        known = {node.metadata.name: self._node_row(node) for node in self._nodes.last_known()}
        for name in unknown:
            row = known.get(name) or NodeRow(name=name)
            rows[name] = msgspec.structs.replace(row, ready=False)
        return tuple(rows[name] for name in sorted(rows))

    def _node_row(self, node: Node) -> NodeRow:
        try:
            return node_row(node)
        except Exception as error:  # noqa: BLE001 - what runs there goes on; the other nodes are used
            name, reason = node.metadata.name, f"{type(error).__name__}: {error}"
            self._unusable_nodes[name] = reason
            _LOG.warning("node %s is left out of scheduling: %s", name, reason)
            return NodeRow(name=name, ready=False)

    def _make_queue_rows(self) -> tuple[rows.Queue, ...]:
        queues = [*self._queues.all(), *self._queues.last_known()]
        named = {queue.metadata.name for queue in queues}
        unknown = [each.name for each in self._queues.undecodable() if each.name not in named]
        # with a row the queue's jobs keep what they hold; those of a missing queue do not
        queues += [Queue(metadata=Metadata(name=name, namespace="")) for name in unknown]
        return queue_rows(queues)

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        with self._lock:
            for job in (old, new):
                if job is not None:
                    self._dirty.add((job.key, job.metadata.uid))

    def _task_changed(self, old: Task | None, new: Task | None) -> None:
        if old is not None and new is not None and (old.phase == "Ended") == (new.phase == "Ended"):
            return  # it holds what it held
        with self._lock:
            for task in (old, new):
                if task is not None:
                    self._dirty.add(((task.spec.namespace, task.spec.job), task.spec.job_uid))

    def _secret_changed(self, old: Secret | None, new: Secret | None) -> None:
        key = (new or old).key  # type: ignore[union-attr]  # one of them is there
        concerned = {
            (job.key, job.metadata.uid)
            for job in self._jobs.all()
            if job.metadata.namespace == key[0] and not job.status.allocation.slots
            if any(use.name == key[1] for role in job.spec.roles for use in role.secrets)
        }
        with self._lock:
            self._dirty |= concerned

    def _mark(self, what: str) -> Callable[[object, object], None]:
        def changed(_old: object, _new: object) -> None:
            with self._lock:
                self._stale.add(what)

        return changed

    def _renew(self, key: Key, uid: str, policy: Policy) -> bool:
        job = self._jobs.get(key)
        tasks = self._tasks.of_job(uid)
        strangers = self._strangers.pop(uid, ())
        skipped = self._skipped.pop(uid, None)
        if job is None or job.metadata.uid != uid:
            self._forget(uid)
            holds = task_holds(tasks)
            if holds:
                self._strangers[uid] = holds
            old = self._rows.get(key)
            gone = old is not None and old.uid == uid
            if gone:
                self._remove(key)
            return gone or holds != strangers
        old = self._rows.get(key)
        if old is not None:
            self._remove(key)
        try:
            check_levels(job, self._known_levels)
            made = form_of(job)
            row = job_row(job, tasks, 0, policy, self._learned(job))
        except Exception as error:  # noqa: BLE001 - reported on the job; the others must be scheduled
            self._skip(key, uid, error)
            holds = task_holds(tasks)
            if holds:
                self._strangers[uid] = holds
            return old is not None or holds != strangers
        missing = self._missing_secret(job) if row is not None and not row.holds else None
        if missing is not None:
            self._skipped[uid] = Skipped(key, SECRET_MISSING, missing)
            return old is not None or skipped != self._skipped[uid]
        if row is not None:
            row = msgspec.structs.replace(row, form=self._forms.take(made))
            self._insert(key, row)
            if not row.ending:
                self._acted = max(self._acted, row.changed)
        return bool(strangers) or _essence(old) != _essence(row)

    def _levels_changed(self) -> set[tuple[Key, str]]:
        """The jobs that name a level of the topology."""
        return {
            (job.key, job.metadata.uid)
            for job in self._jobs.all()
            if any(part.topology is not None for part in (job.spec, *job.spec.roles))
        }

    def _skip(self, key: Key, uid: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        self._skipped[uid] = Skipped(key, UNUSABLE, {"error": reason})
        _LOG.warning("job %s is left out of scheduling: %s", "/".join(key), reason)

    def _missing_secret(self, job: Job) -> dict[str, Any] | None:
        """The first value that the job's roles name and that does not exist."""
        namespace, secrets = job.metadata.namespace, self._secrets
        for use in (use for role in job.spec.roles for use in role.secrets):
            secret = secrets.get((namespace, use.name))
            if secret is None:
                known = [each.metadata.name for each in secrets.all() if each.key[0] == namespace]
                near = nearest(use.name, known)
                evidence = {"namespace": namespace, "secret": use.name, "key": use.key, "exists": False}
                return {**evidence, **({"near": near} if near else {})}
            if use.key not in secret.spec.sealed:
                near = nearest(use.key, secret.spec.sealed)
                evidence = {"namespace": namespace, "secret": use.name, "key": use.key, "exists": True}
                return {**evidence, **({"near": near} if near else {})}
        return None

    def _learned(self, job: Job) -> tuple[float, ...]:
        """Its curve, from how its steps go and those of its application. It is watched until it ends."""
        spec, said, uid = job.spec, job.status.elastic, job.metadata.uid
        if spec.runtime != "elastic":
            return ()
        shared = spec.speed.application if spec.speed is not None else ""
        application = f"{job.metadata.namespace}/{shared}" if shared else ""
        if job.status.phase in FINISHED:
            self._forget(uid)
        elif said is not None:
            turn = (said.attempt, said.recoveries)
            look = Look(at=said.reported, tasks=said.world, step=said.step, turn=turn)
            self._watching.saw(uid, look, application)
        curve = self._watching.curve(uid, elastic_role(spec).replicas, application)
        if spec.speed is None or not spec.speed.curve:
            self._report_slower(job, slower_with_more(curve, self._watching.sure(uid, application)))
        return curve

    def _report_slower(self, job: Job, found: Slower | None) -> None:
        uid, allocation = job.metadata.uid, job.status.allocation
        if found is None or not allocation.slots:
            self._said.pop(uid, None)
        elif self._said.get(uid) != (said := (allocation.id, found.best)):
            self._said[uid] = said
            self._slower(job, found)

    def _forget(self, uid: str) -> None:
        self._watching.forget(uid)
        self._said.pop(uid, None)

    def _insert(self, key: Key, row: JobRow) -> None:
        order = row.order
        position = bisect.bisect_left(self._orders, order)
        self._orders.insert(position, order)
        self._sorted.insert(position, row)
        self._rows[key] = row

    def _remove(self, key: Key) -> None:
        row = self._rows.pop(key)
        position = bisect.bisect_left(self._orders, row.order)
        del self._orders[position]
        del self._sorted[position]
        self._forms.drop(row.form)


def check_levels(job: Job, levels: Sequence[str]) -> None:
    """Refuse a job that names a level which the topology does not have (yet).

    Raises:
        Invalid: it does.
    """
    if job.status.phase not in FINISHED and (found := unknown_levels(job.spec, levels)):
        raise Invalid(found[0].message)


def _essence(row: JobRow | None) -> JobRow | None:
    """The row without what changes nothing while its slots stay: whether tasks are there already, and
    how far they have come."""
    if row is None:
        return None
    holds = tuple(msgspec.structs.replace(hold, live=False, claimed=False) for hold in row.holds)
    return msgspec.structs.replace(row, holds=holds, progress=0.0)


class _Forms:
    """Forms by number; a number is used again once no row has it."""

    def __init__(self) -> None:
        self._numbers: dict[Form, int] = {}
        self._forms: list[Form] = []
        self._uses: list[int] = []
        self._free: list[int] = []

    def take(self, form: Form) -> int:
        number = self._numbers.get(form)
        if number is None:
            number = self._free.pop() if self._free else len(self._forms)
            if number == len(self._forms):
                self._forms.append(form)
                self._uses.append(0)
            self._forms[number] = form
            self._numbers[form] = number
        self._uses[number] += 1
        return number

    def drop(self, number: int) -> None:
        self._uses[number] -= 1
        if self._uses[number] == 0:
            del self._numbers[self._forms[number]]
            self._free.append(number)

    def all(self) -> tuple[Form, ...]:
        return tuple(self._forms)
