"""Reports for clients: state and usage of each task, capacity and use of each node.

Tasks come from the controllers' cache, never from the nodes: only usage is measured there, in one call
for all tasks of a report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from shoal.client.reports import NodeUsage, TaskReport, UsageReport
from shoal.cluster.base import Cluster, NodeState, Task, Usage
from shoal.control.task_cache import TaskCache
from shoal.history.base import Logs
from shoal.objects.elastic import own_roles
from shoal.objects.errors import Invalid, NotFound
from shoal.objects.job import Job, Role, RoleStatus
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.ranges import IndexMap, IndexSet
from shoal.objects.task import TaskKey

__all__ = ["KnownTasks", "find_task", "reports_of", "require_task", "usage_report"]

KnownTasks = Callable[[str], "tuple[Task, ...] | None"]
"""The tasks of a job (its uid) that have not been acknowledged; None while not all of them are known."""

_UNUSED = Usage()


def find_task(tasks: TaskCache, job: Job, role: str, index: int) -> TaskKey:
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
            return task.spec.key
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
        silent_nodes=tuple(sorted(tasks.unreachable_nodes)),
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
