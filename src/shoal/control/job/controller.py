"""The effects of the job controller: observe, reconcile, apply, in order.

Any action may be the last one: a Conflict, a node that does not answer, or SIGKILL ends the pass, and
the next one starts from what is true then. Stops and acknowledgements of one unreachable node do not
keep those of other nodes from happening.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from shoal import faults, metrics
from shoal.cluster.base import Task
from shoal.control.cache import ObjectCache
from shoal.control.context import ControllerContext
from shoal.control.job.actions import (
    Acknowledge,
    Action,
    AddFinalizer,
    Bootstrap,
    CleanUp,
    DeleteJob,
    Ensure,
    Note,
    PatchStatus,
    RemoveFinalizer,
    Stop,
)
from shoal.control.job.dependencies import Dependents, ends_of
from shoal.control.job.observe import FINALIZER, Observed
from shoal.control.job.reconcile import reconcile_job
from shoal.control.runner import Key, Source
from shoal.objects import codec
from shoal.objects.errors import Unavailable
from shoal.objects.job import Job
from shoal.objects.kinds import JOB, NODE
from shoal.objects.meta import Object
from shoal.objects.node import Node
from shoal.objects.task import TaskBootstrap, TaskKey, TaskSpec

WRITER = "job"
_LOG = logging.getLogger("shoal.control")
_UNKNOWN_GRACE_SECONDS = 10.0
"""For tasks of a job that is gone, or cannot be decoded."""
_UNKNOWN_AGAIN_SECONDS = 1.0


class JobController:
    """See the module's docstring; one call per job at a time, different jobs on several threads."""

    name = "job"

    def __init__(self, context: ControllerContext) -> None:
        self._jobs: ObjectCache[Job] = context.cache(JOB)
        self._nodes: ObjectCache[Node] = context.cache(NODE)
        self._tasks = context.tasks
        self._cluster = context.cluster
        self._guard = context.guard
        self._rendezvous = context.rendezvous
        self._recorder = context.recorder
        self._dependents = Dependents()

    def sources(self) -> Sequence[Source]:
        """Jobs with those that wait for them, their tasks, and nodes that are declared lost or answer
        again."""
        return (
            Source(
                self._jobs,
                lambda old, new: [(new or old).key, *self._dependents.change(old, new)],
                undecodable=lambda add: self._jobs.on_undecodable(lambda found: add(found.key)),
            ),
            Source(self._tasks, lambda old, new: [_key_of(new or old)]),
            Source(self._nodes, self._node_changed),
        )

    def reconcile(self, key: Key, now: float) -> float | None:
        """Drive one job; see `shoal.control.runner.Controller.reconcile`."""
        job = self._jobs.get(key)
        self._end_orphans(key, job)
        if job is None:
            undecodable = self._jobs.quarantined(key)
            partial = undecodable.partial if undecodable is not None else None
            return self._finish_deletion(partial) if partial is not None else None
        try:
            decision = reconcile_job(self._see(job), now)
        except Exception:
            if not job.metadata.deleted:
                raise
            _LOG.exception("job %s/%s is deleted by its metadata alone", *key)
            return self._finish_deletion(job)
        unreachable: list[str] = []
        for action in decision.actions:
            self._guard.check()
            job = self._apply(job, action, now, unreachable)
        if unreachable:
            raise Unavailable(unreachable[0])
        return decision.again_seconds

    def _see(self, job: Job) -> Observed:
        unreachable = self._tasks.unreachable_nodes
        lost = frozenset(node.metadata.name for node in self._nodes.all() if node.spec.lost)
        tasks = self._tasks.of_job(job.metadata.uid)
        gone = unreachable & lost
        return Observed(
            job,
            tuple(task for task in tasks if task.spec.placement.node not in gone),
            unreachable=unreachable,
            lost=lost,
            ends=ends_of(job, self._jobs),
            awaited=self._dependents.wait_for(job),
        )

    def _apply(self, job: Job, action: Action, now: float, unreachable: list[str]) -> Job:
        match action:
            case AddFinalizer():
                finalizers = (*job.metadata.finalizers, FINALIZER)
                job = self._jobs.update(_with_finalizers(job, finalizers))
                faults.point("server.job.finalizer.added")
            case PatchStatus(fields):
                job = self._write(job, fields)
                faults.point("server.job.status.written")
            case Note(reason, message, warning, jobs):
                self._recorder.event(job, reason, message, warning=warning, at=now, jobs=jobs)
                metrics.JOB_EVENTS.labels(reason).inc()
                faults.point("server.job.event.noted")
            case Acknowledge(task):
                if task.refusal is None:  # it never ran
                    self._recorder.attempt(job, task)
                faults.point("server.job.attempt.noted")
                _spare(unreachable, lambda: self._acknowledge(task))
                faults.point("server.job.task.acknowledged")
            case Stop(task, grace, reason):
                _spare(unreachable, lambda: self._cluster.stop(task, grace_seconds=grace, reason=reason))
                faults.point("server.job.task.stopped")
            case Ensure():
                self._ensure(action)
                faults.point("server.job.group.ensured")
            case Bootstrap(tasks):
                self._bootstrap(job, tasks)
                faults.point("server.job.group.bootstrapped")
            case CleanUp(outputs):
                self._forget(job, outputs)
                faults.point("server.job.folders.forgotten")
            case RemoveFinalizer():
                finalizers = tuple(f for f in job.metadata.finalizers if f != FINALIZER)
                job = self._jobs.update(_with_finalizers(job, finalizers))
                faults.point("server.job.finalizer.removed")
            case DeleteJob():
                self._jobs.delete(job)
                faults.point("server.job.deleted")
        return job

    def _acknowledge(self, task: Task) -> None:
        self._tasks.acknowledge(task.spec.key)
        if task.refusal is not None:
            metrics.TASK_REFUSALS.labels(task.refusal.reason).inc()
        else:
            metrics.TASK_ENDS.labels(task.stop_reason or "Exited").inc()

    def _end_orphans(self, key: Key, job: Job | None) -> None:
        """End tasks of a job that is gone: it was deleted while their node did not answer."""
        own = job.metadata.uid if job is not None else ""
        orphans = self._tasks.uids(*key) - {own}
        if not orphans:
            return
        there = self._jobs.refresh(key)  # the cache may be behind another server's write
        if self._jobs.quarantined(key) is not None:
            return  # the job is there: a version that can decode it drives its tasks
        for uid in orphans - ({there.metadata.uid} if there is not None else set()):
            tasks = [t for t in self._tasks.of_job(uid) if self._tasks.knows(t.spec.placement.node)]
            for task in tasks:
                self._guard.check()
                if task.phase == "Ended":
                    self._tasks.acknowledge(task.spec.key)
                elif task.stop_reason is None:
                    self._cluster.stop(
                        task.spec.key, grace_seconds=_UNKNOWN_GRACE_SECONDS, reason="Deleted"
                    )
                faults.point("server.job.orphan.ended")
            if tasks and not self._tasks.of_job(uid):
                self._cluster.cleanup_job(key[0], uid, outputs=False)

    def _finish_deletion(self, job: Object) -> float | None:
        """Finish the deletion of a job of which this version can use the metadata alone."""
        meta = job.metadata
        if not meta.deleted or FINALIZER not in meta.finalizers:
            return None
        lost = {node.metadata.name for node in self._nodes.all() if node.spec.lost}
        unreachable, gone = self._tasks.unreachable_nodes - lost, self._tasks.unreachable_nodes & lost
        tasks = [t for t in self._tasks.of_job(meta.uid) if t.spec.placement.node not in gone]
        for task in tasks:
            self._guard.check()
            if task.spec.placement.node in unreachable:
                continue
            if task.phase == "Ended":
                if task.refusal is None:
                    self._recorder.attempt(job, task)
                self._acknowledge(task)
            elif task.stop_reason is None:
                self._cluster.stop(task.spec.key, grace_seconds=_UNKNOWN_GRACE_SECONDS, reason="Deleted")
        document = codec.encode(job)
        if tasks or any(node.encode() in document for node in unreachable):
            return _UNKNOWN_AGAIN_SECONDS
        self._guard.check()
        self._forget(job, outputs=codec.builtins(job)["spec"].get("cleanUp") == "All")
        self._jobs.remove_finalizer(job, FINALIZER)
        return None

    def _forget(self, job: Object, outputs: bool) -> None:
        try:
            self._cluster.cleanup_job(job.metadata.namespace, job.metadata.uid, outputs=outputs)
        except Unavailable:
            lost = {node.metadata.name for node in self._nodes.all() if node.spec.lost}
            unreachable = self._tasks.unreachable_nodes
            # a node that stopped answering just now is not listed as unreachable yet
            if not unreachable or unreachable - lost:
                raise

    def _ensure(self, wanted: Ensure) -> None:
        groups = [wanted.group] if wanted.together else [(spec,) for spec in wanted.group]
        unreachable: Unavailable | None = None
        for group in groups:
            try:
                self._cluster.ensure(group)
            except Unavailable as error:  # the indices of an array do not wait for each other
                unreachable = error
        if unreachable is not None:
            raise unreachable

    def _bootstrap(self, job: Job, tasks: tuple[Task, ...]) -> None:
        """Render the rendezvous of those that have none yet, with the endpoints of all the group and of
        the job's other tasks."""
        names = {task.spec.name for task in tasks}
        others = (task for task in self._tasks.of_job(job.metadata.uid) if task.spec.name not in names)
        known = [*(task for task in others if task.phase != "Ended"), *tasks]
        endpoints = tuple(task.endpoint for task in known if task.endpoint is not None)
        by_attempt: dict[int, list[TaskSpec]] = {}
        for task in tasks:
            if not task.bootstrapped:
                by_attempt.setdefault(task.spec.attempt, []).append(task.spec)
        bootstraps: dict[TaskKey, TaskBootstrap] = {}
        for attempt, specs in by_attempt.items():
            rendered = self._rendezvous(job, attempt, tuple(specs), endpoints)
            bootstraps.update((spec.key, rendered[spec.name]) for spec in specs)
        self._cluster.bootstrap(bootstraps)
        metrics.TASK_STARTS.inc(len(bootstraps))

    def _write(self, job: Job, fields: Mapping[str, object]) -> Job:
        """What was decided on a spec that has changed since is decided again."""
        generation = job.metadata.generation
        return self._jobs.patch_status(job, writer=WRITER, fields=fields, generation=generation)

    def _node_changed(self, old: Node | None, new: Node | None) -> list[Key]:
        if old is not None and new is not None and old.spec.lost == new.spec.lost:
            ready = [_ready(node) for node in (old, new)]
            if ready[0] == ready[1]:
                return []
        names = {node.metadata.name for node in (old, new) if node is not None}
        there = {_key_of(task) for task in self._tasks.all() if task.spec.placement.node in names}
        return [*there.union(job.key for job in self._jobs.all() if _concerned(job, names))]


def _key_of(task: Task) -> Key:
    return (task.spec.namespace, task.spec.job)


def _concerned(job: Job, nodes: set[str]) -> bool:
    """Whether the job has, or had, something on one of these nodes, or waits for all nodes to forget it.

    Its own map of nodes is not parsed: that a name occurs in it is enough for a look at the job.
    """
    if job.metadata.deleted:
        return True
    if job.status.phase in ("Succeeded", "Failed", "Cancelled"):
        return False
    return any(slots.node in nodes for slots in job.status.allocation.slots) or any(
        node in role.nodes for role in job.status.roles for node in nodes
    )


def _ready(node: Node) -> str:
    return next((c.status for c in node.status.conditions if c.type == "Ready"), "")


def _with_finalizers(job: Job, finalizers: tuple[str, ...]) -> Job:
    metadata = msgspec.structs.replace(job.metadata, finalizers=finalizers)
    return msgspec.structs.replace(job, metadata=metadata)


def _spare(unreachable: list[str], effect: Callable[[], None]) -> None:
    try:
        effect()
    except Unavailable as error:
        unreachable.append(error.message)
