"""Reports for clients: state and usage of each task, capacity and use of each node."""

from __future__ import annotations

from collections.abc import Callable

from shoal.client.reports import NodeUsage, TaskReport, UsageReport
from shoal.cluster.base import Cluster, NodeState, Task, Usage
from shoal.history.base import Logs
from shoal.objects.elastic import own_roles
from shoal.objects.errors import Invalid, NotFound, Unavailable
from shoal.objects.job import Job, Role, RoleStatus
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.ranges import IndexMap, IndexSet
from shoal.objects.task import TaskKey

__all__ = ["KnownTasks", "find_task", "report_of", "reports_of", "require_task", "usage_report"]

KnownTasks = Callable[[str], "tuple[Task, ...] | None"]
"""The tasks of a job (its uid) that have not been acknowledged; None while not all of them are known."""


def find_task(cluster: Cluster, job: Job, role: str, index: int) -> TaskKey:
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
    wanted = (job.metadata.uid, role or names[0], index)
    for task in cluster.list().tasks:
        if (task.spec.job_uid, task.spec.role, task.spec.index) == wanted and task.phase == "Running":
            return task.spec.key
    raise NotFound(
        f"{wanted[1]} {index} of job {job.metadata.name} does not run now",
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


def _indices(job: Job, role: Role) -> IndexSet:
    """All indices that the role has, or had when it was larger."""
    if job.spec.array is not None:
        return IndexSet.parse(job.spec.array.indices)
    status = next(
        (each for each in job.status.roles if each.name == role.name), RoleStatus(name=role.name)
    )
    past = (IndexMap.parse(text) for text in (status.incarnations, status.exit_codes, status.nodes))
    return IndexSet([*range(role.replicas), *(index for each in past for index in each)])


def reports_of(cluster: Cluster, tasks: tuple[Task, ...]) -> tuple[TaskReport, ...]:
    """The tasks by role, index and incarnation, each with its usage where its node tells it."""
    ordered = sorted(
        tasks,
        key=lambda task: (
            task.spec.namespace, task.spec.job, task.spec.role, task.spec.index, task.spec.incarnation,
        ),
    )  # fmt: skip
    return tuple(report_of(task, _usage(cluster, task)) for task in ordered)


def report_of(task: Task, usage: Usage) -> TaskReport:
    """What is told of a task; not its environment."""
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


def _usage(cluster: Cluster, task: Task) -> Usage:
    if task.phase not in ("Running", "Terminating"):
        return Usage()
    try:
        return cluster.usage(task.spec.key)
    except (NotFound, Unavailable):
        return Usage()  # it ended meanwhile, or its node does not answer: the list says which


def usage_report(cluster: Cluster, namespace: str, now: float) -> UsageReport:
    """Nodes always in full; tasks only of the namespace, where one is named."""
    listing = cluster.list()
    reports = reports_of(cluster, listing.tasks)
    specs = {(t.spec.namespace, t.spec.name): t for t in listing.tasks}
    nodes = tuple(
        _node(node, [r for r in reports if r.node == node.name], specs) for node in cluster.nodes()
    )
    mine = tuple(r for r in reports if not namespace or r.namespace == namespace)
    return UsageReport(at=now, nodes=nodes, tasks=mine, silent_nodes=listing.unreachable_nodes)


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
