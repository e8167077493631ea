"""Reports for clients: why an object is in its state, state and usage of each task, use of each node.

An explanation is put together from what the writers of an object left in its status. Nothing is decided
again here: code, numbers and the order of waiting jobs are the scheduler's own, the reason of a phase is
the job controller's. Jobs that have ended since the decision are left out of them.

Tasks come from the controllers' cache, never from the nodes: only usage is measured there, in one call
for all tasks of a report.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.client.reports import Explanation, NodeUsage, TaskReport, UsageReport
from shoal.cluster.base import Cluster, NodeState, Task, Usage
from shoal.control.task_cache import TaskCache
from shoal.history.base import About, Entry, EntryType, History, Logs
from shoal.objects.elastic import own_roles
from shoal.objects.errors import Invalid, NotFound
from shoal.objects.job import FINISHED, Job, Role, RoleStatus
from shoal.objects.kind import Kind, Size
from shoal.objects.kinds import JOB, QUEUE
from shoal.objects.meta import Object
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import RESOURCES, summaries
from shoal.objects.ranges import IndexMap, IndexSet
from shoal.objects.text import plural
from shoal.schedule.explain import explain as in_words

if TYPE_CHECKING:
    from shoal.control.context import ControllerContext

_MOST_AHEAD = 20
_MOST_ENTRIES = 20
_NAMES_OF_JOBS = ("holders", "waitsFor", "behind", "for")
_TAKEN = ("Preempted", "Resized", "NodeLost", "NodeDrained", "Refused")
"""Steps of a plan after which a job has less than it wants."""
KnownTasks = Callable[[str], "tuple[Task, ...] | None"]
"""The tasks of a job (its uid) that have not been acknowledged; None while not all of them are known."""

_UNUSED = Usage()


def explanation_of(
    kind: Kind,
    obj: Object,
    *,
    history: History | None,
    cluster: Cluster | None,
    control: ControllerContext | None,
    readable: Callable[[str], bool] = lambda _namespace: True,
) -> Explanation:
    """The explanation of one object; components that are not up yet are left out. Jobs of namespaces
    that are not `readable` are counted instead of named."""
    about = About(
        kind=kind.name,
        namespace=obj.metadata.namespace if kind.namespaced else "",
        name=obj.metadata.name,
        uid=obj.metadata.uid,
    )
    state = kind.state(obj)
    message, remedy, evidence = state.message, state.remedy, dict(state.evidence)
    seen = VisibleNames(readable)
    decisions = seen.entries(_entries(history, about, "decision"))
    if state.scheduler:
        evidence = seen.evidence(_usage_now(control, state.code, _without_ended(control, evidence)))
        words = in_words(state.code, evidence)
        message = message if message and evidence == state.evidence else words.sentence
        remedy = words.remedy
    elif state.size is not None and not (state.code or message):
        message, remedy = _room_for_more(state.size, decisions)
    return Explanation(
        kind=kind.name,
        namespace=about.namespace,
        name=about.name,
        phase=state.phase,
        code=state.code,
        message=message,
        remedy=remedy,
        evidence=evidence,
        since=state.since,
        starts=state.starts,
        ahead=tuple(seen.names(_ahead(control, obj))) if state.queued else (),
        tasks=_tasks(control, cluster, kind, obj),
        decisions=decisions,
        events=seen.entries(_entries(history, about, "event"), _beneficiaries(obj)),
    )


class VisibleNames:
    """What a reader sees of jobs' names (`namespace/name`): others are counted. History keeps the names
    in an entry's message apart (`jobs`, or the `evidence` of a decision), so that they can be hidden."""

    def __init__(self, readable: Callable[[str], bool]) -> None:
        self._readable = readable
        self._hidden: set[str] = set()

    def names(self, names: Iterable[str]) -> list[str]:
        """The names of jobs that may be read, and how many others there are."""
        listed = list(names)
        hidden = [name for name in listed if not self._readable(name.partition("/")[0])]
        if not hidden:
            return listed
        self._hidden.update(hidden)
        count = plural(len(hidden), "job")
        others = f"{count} of {'another namespace' if len(hidden) == 1 else 'other namespaces'}"
        return [*(name for name in listed if name not in hidden), others]

    def evidence(self, evidence: dict[str, Any]) -> dict[str, Any]:
        """Evidence with the names that it lists replaced; the same where none has to be."""
        now: dict[str, Any] = {
            key: self.names(value) if key in _NAMES_OF_JOBS else value for key, value in evidence.items()
        }
        if "also" in now:
            now["also"] = [self.evidence(each) for each in now["also"]]
        return now

    def entries(self, entries: tuple[Entry, ...], named: Iterable[str] = ()) -> tuple[Entry, ...]:
        """Entries of history; their messages are without the names that are hidden in any of them, or
        among those `named`."""
        self.names(named)
        data = [self._data(each.data) for each in entries]
        if not self._hidden:
            return entries
        return tuple(
            msgspec.structs.replace(each, data=shown, message=self._without(each.message))
            for each, shown in zip(entries, data, strict=True)
        )

    def _data(self, data: dict[str, Any]) -> dict[str, Any]:
        shown = dict(data)
        if "evidence" in data:
            shown["evidence"] = self.evidence(data["evidence"])
        if "jobs" in data:
            shown["jobs"] = self.names(data["jobs"])
        return shown

    def _without(self, message: str) -> str:
        for name in sorted(self._hidden, key=len, reverse=True):
            message = re.sub(
                rf"(?<![\w/.-]){re.escape(name)}(?![\w-])", "a job of another namespace", message
            )
        return message


def _beneficiaries(obj: Object) -> tuple[str, ...]:
    allocation = getattr(getattr(obj, "status", None), "allocation", None)
    return () if allocation is None else allocation.beneficiaries


def _room_for_more(size: Size, decisions: tuple[Entry, ...]) -> tuple[str, str]:
    """Why an object that runs holds less than it may have, and what would change it."""
    if size.held >= size.most:
        return "", ""
    runs = f"it runs with {size.held} of at most {size.most} {size.unit}"
    steps = [each for each in decisions if each.reason in ("Started", "Grown", "Slower", *_TAKEN)]
    last = steps[-1] if steps else None
    if last is not None and last.reason == "Slower":
        return f"{runs}: {last.message}", in_words(last.reason, last.data["evidence"]).remedy
    why = "there is no room for more, or its queue has none"
    if last is not None and last.reason in _TAKEN:
        why = last.message
    return f"{runs}: {why}", "it grows by itself when there is room"


def _ahead(control: ControllerContext | None, obj: Object) -> tuple[str, ...]:
    """Jobs that the last decision considered before this one, and that still wait."""
    if control is None:
        return ()
    jobs = control.cache(JOB)
    waiting = (key for key in control.order.before(obj.key) if _waits(jobs.get(key)))
    return tuple("/".join(key) for key in islice(waiting, _MOST_AHEAD))


def _waits(job: Job | None) -> bool:
    return (
        job is not None and job.status.phase == "Pending" and not _is_over(job) and not job.spec.suspend
    )


def _is_over(job: Job | None) -> bool:
    return job is None or job.spec.cancelled or job.status.phase in FINISHED


def _without_ended(control: ControllerContext | None, evidence: dict[str, Any]) -> dict[str, Any]:
    """The evidence without jobs that have ended since the decision, and without holders that hold
    nothing now: it is written again only when its code changes."""
    if control is None:
        return evidence
    jobs = control.cache(JOB)

    def outdated(key: str, name: str) -> bool:
        namespace, _, short = name.partition("/")
        job = jobs.get((namespace, short))
        return _is_over(job) or (
            key == "holders" and job is not None and not job.status.allocation.slots
        )

    now = {
        key: [name for name in value if not outdated(key, name)]
        if key in ("holders", "waitsFor", "behind")
        else value
        for key, value in evidence.items()
    }
    if "also" in now:
        now["also"] = [_without_ended(control, each) for each in now["also"]]
    return now


def _usage_now(control: ControllerContext | None, code: str, evidence: dict[str, Any]) -> dict[str, Any]:
    """The evidence of a queue's limit with what the queue's jobs hold now: the decision's number is
    written again only when its code changes."""
    now = dict(evidence)
    if control is not None and code == "Limit":
        queues = {each.metadata.name: each for each in control.cache(QUEUE).all()}
        queue = queues.get(evidence["queue"])
        if queue is not None and queue.status.writers and evidence["resource"] in RESOURCES:
            now["used"] = summaries(queues.values())[evidence["queue"]].used[evidence["resource"]]
    if "also" in now:
        now["also"] = [_usage_now(control, each.get("code", ""), each) for each in now["also"]]
    return now


def _tasks(
    control: ControllerContext | None, cluster: Cluster | None, kind: Kind, obj: Object
) -> tuple[TaskReport, ...]:
    if control is None or cluster is None or kind.tasks != "owned":
        return ()
    return reports_of(cluster, control.tasks.of_job(obj.metadata.uid))


def _entries(history: History | None, about: About, what: EntryType) -> tuple[Entry, ...]:
    if history is None:
        return ()
    return history.entries(types=(what,), about=about, limit=_MOST_ENTRIES, newest=True)


def find_task(tasks: TaskCache, job: Job, role: str, index: int) -> Task:
    """The running task of a job's role and index; the job's only role, where none is named.

    Raises:
        Invalid: the job has several roles and none is named.
        NotFound: that task does not run.
    """
    names = [each.name for each in own_roles(job.spec)]
    if not role and len(names) > 1:
        raise Invalid(
            f"job {job.metadata.name} has the roles {', '.join(names)}: which one?",
            hint=f"name it: --role {names[0]}",
        )
    wanted = (role or names[0], index)
    for task in tasks.of_job(job.metadata.uid):
        if (task.spec.role, task.spec.index) == wanted and task.phase == "Running":
            return task
    raise NotFound(
        f"{wanted[0]} {index} of job {job.metadata.name} does not run now",
        hint=f"see what runs with: shoal describe job/{job.metadata.name}",
    )


def require_task(job: Job, role: str, index: int | None, logs: Logs) -> None:
    """Refuse a role or an index that the job does not have and of which there is no log.

    Raises:
        NotFound: with the roles or the indices that exist.
    """
    name = job.metadata.name
    roles = [each.name for each in job.spec.roles]
    if role and role not in roles:
        raise NotFound(f"job {name} has no role {role}", hint=f"its roles are {', '.join(roles)}")
    if index is None:
        return
    known = {each.name: _indices(job, each) for each in job.spec.roles if role in ("", each.name)}
    if any(index in indices for indices in known.values()):
        return
    if not logs.keys(*job.key, job.metadata.uid, role=role, index=index):
        shown = "; ".join(f"{each} {indices.text}" for each, indices in known.items())
        raise NotFound(f"job {name} has no task with index {index}", hint=f"its tasks are {shown}")


def reports_of(cluster: Cluster, tasks: Iterable[Task]) -> tuple[TaskReport, ...]:
    """The tasks by role, index and incarnation, each with its usage where its node answers."""
    ordered = sorted(
        tasks,
        key=lambda task: (
            task.spec.namespace, task.spec.job, task.spec.role, task.spec.index, task.spec.incarnation,
        ),
    )  # fmt: skip
    running = [task.spec.key for task in ordered if task.phase in ("Running", "Terminating")]
    used = cluster.usage(running)
    return tuple(_report_of(task, used.get(task.spec.key, _UNUSED)) for task in ordered)


def usage_report(cluster: Cluster, tasks: TaskCache, namespace: str, now: float) -> UsageReport:
    """Nodes always in full; tasks only of the namespace, where one is named."""
    known = tasks.all()
    reports = reports_of(cluster, known)
    by_node: dict[str, list[TaskReport]] = defaultdict(list)
    for report in reports:
        by_node[report.node].append(report)
    specs = {(each.spec.namespace, each.spec.name): each for each in known}
    return UsageReport(
        at=now,
        nodes=tuple(_node(node, by_node[node.name], specs) for node in cluster.nodes()),
        tasks=tuple(r for r in reports if not namespace or r.namespace == namespace),
        unreachable_nodes=tuple(sorted(tasks.unreachable_nodes)),
    )


def _indices(job: Job, role: Role) -> IndexSet:
    """All indices that the role has, or had when it was larger."""
    if job.spec.array is not None:
        return IndexSet.parse(job.spec.array.indices)
    status = next(
        (each for each in job.status.roles if each.name == role.name), RoleStatus(name=role.name)
    )
    past = (IndexMap.parse(text) for text in (status.incarnations, status.exit_codes, status.nodes))
    return IndexSet([*range(role.replicas), *(index for each in past for index in each)])


def _report_of(task: Task, usage: Usage) -> TaskReport:
    """Without the environment, which may hold secrets."""
    spec = task.spec
    return TaskReport(
        namespace=spec.namespace,
        job=spec.job,
        job_uid=spec.job_uid,
        role=spec.role,
        index=spec.index,
        attempt=spec.attempt,
        incarnation=spec.incarnation,
        name=spec.name,
        node=spec.placement.node,
        phase=task.phase,
        ready=task.ready,
        started=task.started,
        ended=task.ended,
        idle_since=task.idle_since,
        outcome=task.outcome,
        unenforced=task.unenforced,
        cpu_seconds=usage.cpu_seconds,
        memory_bytes=usage.memory_bytes,
        peak_memory_bytes=usage.peak_memory_bytes,
        gpu_ratio=usage.gpu_ratio,
    )


def _node(node: NodeState, reports: list[TaskReport], tasks: dict[tuple[str, str], Task]) -> NodeUsage:
    there = [r for r in reports if r.phase != "Ended"]
    specs = [tasks[r.namespace, r.name].spec for r in there]
    return NodeUsage(
        name=node.name,
        ready=node.ready,
        capacity=node.capacity,
        requested_cpu=CpuMillis(sum(spec.cpu for spec in specs)),
        requested_memory=Bytes(sum(spec.memory or 0 for spec in specs)),
        held_gpus=sum(len(spec.placement.devices) for spec in specs),
        tasks=len(there),
        cpu_seconds=sum(r.cpu_seconds for r in there),
        memory_bytes=sum(r.memory_bytes for r in there),
    )
