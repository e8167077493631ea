"""Objects as the scheduler's rows. Pure: an object and its tasks give a row."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from shoal.cluster.base import Task
from shoal.control.queue_usage import holds_of, release_reason, service_rate
from shoal.objects.elastic import coordinator_of, own_roles
from shoal.objects.job import (
    PRIORITIES,
    Job,
    JobSpec,
    Role,
    Speed,
    restart_scope,
    share_of,
    unmet_dependencies,
)
from shoal.objects.kinds import QUEUE
from shoal.objects.node import Node
from shoal.objects.queue import Amounts, Queue, Quota
from shoal.objects.ranges import IndexMap, IndexSet
from shoal.schedule.cycle.rows import Budget, UserUsage
from shoal.schedule.cycle.rows import Queue as Row
from shoal.schedule.plan import Policy
from shoal.schedule.snapshot import (
    LONGEST_AVOIDANCE_SECONDS,
    Form,
    JobRow,
    NodeRow,
    RoleForm,
    Shape,
)

TURN_OVER = "TurnOver"
"""Why a job gave back everything that had its turn: it is behind those that wait already."""
_WALL_MARGIN_SECONDS = 2.0
"""Its end is the job controller's to decide; the scheduler does not come first."""
_LOG = logging.getLogger("shoal.control")
Nominal = dict[str, dict[str, float]]
"""Queue to resource to amount."""


def node_row(node: Node) -> NodeRow:
    """A node as the scheduler sees it."""
    spec, status = node.spec, node.status
    ready = any(c.type == "Ready" and c.status == "True" for c in status.conditions)
    return NodeRow(
        name=node.metadata.name,
        cpu=int(status.capacity.cpu),
        memory=int(status.capacity.memory),
        gpus=status.capacity.gpus,
        labels=spec.labels,
        taints=spec.taints,
        ready=ready,
        schedulable=not spec.unschedulable and not node.metadata.deleted,
        lost=spec.lost,
    )


def job_row(
    job: Job, tasks: Iterable[Task], form: int, policy: Policy, learned: tuple[float, ...] = ()
) -> JobRow | None:
    """A job as the scheduler sees it; None when there is nothing to decide about it. `learned`: its
    curve as far as it was seen, for where none is declared."""
    meta, status = job.metadata, job.status
    ending, holds = release_reason(job), holds_of(job, tasks)
    if ending and not holds and not status.scheduling.code:
        return None
    if not holds and unmet_dependencies(job):
        return None  # it asks for nothing yet
    refusal, allocation, speed = status.refusal, status.allocation, job.spec.speed or Speed()
    refused = refusal is not None and refusal.allocation == allocation.id
    doublings = min(max(0, status.infrastructure_failures - 1), 10)
    patience = min(LONGEST_AVOIDANCE_SECONDS, policy.avoid_seconds * 2.0**doublings)
    return JobRow(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        generation=meta.generation,
        queue=job.spec.queue,
        priority=priority_of(job.spec.priority),
        user=job.user,
        created=meta.created,
        since=allocation.since,
        waits_since=_waits_since(job),
        wall_seconds=_wall_seconds(job),
        grace_seconds=float(job.spec.grace_period),
        preemptible=job.spec.preemptible,
        speeds=_sound(speed.curve or learned),
        work=speed.work,
        progress=float(status.elastic.step) if status.elastic is not None else 0.0,
        restart_seconds=_restart_seconds(job),
        served=allocation.served,
        service_rate=service_rate(job),
        form=form,
        ending=ending,
        allocation=allocation.id,
        changed=allocation.changed,
        reason=allocation.reason,
        code=status.scheduling.code,
        evidence=status.scheduling.evidence,
        reserved=status.scheduling.reserved,
        promised=status.scheduling.promised,
        place=status.scheduling.place,
        holds=holds,
        done=tuple(
            (role.name, IndexSet(IndexMap.parse(role.outcomes)).text)
            for role in status.roles
            if role.outcomes
        ),
        refused=refused,
        avoid=refusal.node if refusal is not None else "",
        avoid_until=refusal.at + patience if refusal is not None else 0.0,
        avoid_reason=refusal.reason if refusal is not None else "",
        avoid_message=refusal.message if refusal is not None else "",
    )


def _waits_since(job: Job) -> float | None:
    """Since when its place in the order counts, where that is not its creation."""
    allocation = job.status.allocation
    return allocation.changed if allocation.reason == TURN_OVER else job.status.eligible or None


def _restart_seconds(job: Job) -> float:
    """What was said that a change of its size costs, else what its changes have cost it so far."""
    said, seen = job.spec.speed, job.status.elastic
    if said is not None and said.restart is not None:
        return float(said.restart)
    return seen.recovery_seconds / seen.recoveries if seen is not None and seen.recoveries else 0.0


def _sound(curve: tuple[float, ...]) -> tuple[float, ...]:
    """A curve that makes no sense, from before it was refused, is none: it is not to stop a decision."""
    return curve if all(math.isfinite(speed) and speed > 0 for speed in curve) else ()


def form_of(job: Job) -> Form:
    """What the job asks for."""
    spec = job.spec
    if spec.array is not None:
        indices = IndexSet.parse(spec.array.indices).text
        role = RoleForm(name=spec.roles[0].name, shape=_shape(spec.roles[0]), indices=indices, minimum=0)
        form = Form(roles=(role,), minimum=1, array=True, parallelism=spec.array.parallelism)
        return _somewhere(form, spec)
    least = 0 if spec.gang.min is not None else None
    own, coordinator = own_roles(spec), coordinator_of(spec)
    roles = tuple(
        RoleForm(
            name=role.name,
            shape=_shape(role),
            indices=IndexSet.span(role.replicas).text,
            elastic=role.min_replicas is not None,
            required=role.topology.required if role.topology else "",
            preferred=role.topology.preferred if role.topology else "",
            minimum=min(
                role.replicas,
                next(m for m in (role.min_replicas, least, role.replicas) if m is not None),
            ),
        )
        for role in own
    )
    minimum = min(sum(role.replicas for role in own), spec.gang.min or 0)
    if coordinator is not None:  # first of all: without it no member can join, and nothing replaces it
        first = RoleForm(name=coordinator.name, shape=_shape(coordinator), indices="0", minimum=1)
        roles, minimum = (first, *roles), minimum and minimum + 1
    whole, movable = restart_scope(job.spec) == "Gang", spec.runtime == "elastic"
    return _somewhere(Form(roles=roles, minimum=minimum, whole=whole, movable=movable), spec)


def _somewhere(form: Form, spec: JobSpec) -> Form:
    where = spec.topology
    if where is None:
        return form
    return msgspec.structs.replace(
        form, required=where.required, preferred=where.preferred, spread=where.spread
    )


def _wall_seconds(job: Job) -> float | None:
    """Counted from when it began to hold what it holds; its limit counts from its first start."""
    limit, started = job.spec.limits.wall_time, job.status.started
    if limit is None:
        return None
    since = job.status.allocation.since
    gone = since - started if started and since else 0.0
    return max(0.0, float(limit) - gone) + _WALL_MARGIN_SECONDS


def priority_of(value: int | str) -> int:
    """The number that a priority stands for; a name that is not known counts as normal."""
    return value if isinstance(value, int) else PRIORITIES.get(value, 0)


def _shape(role: Role) -> Shape:
    return Shape(
        cpu=int(role.resources.cpu),
        memory=int(role.resources.memory or 0),
        gpu=role.resources.gpu,
        share=share_of(role.resources),
        selector=tuple(sorted(role.node_selector.items())),
        tolerations=role.tolerations,
    )


def queue_rows(queues: Iterable[Queue]) -> tuple[Row, ...]:
    """All of them, by name, free of contradictions."""
    rows = {row.name: row for row in map(_usable_row, sorted(queues, key=lambda q: q.metadata.name))}
    for name, row in rows.items():
        if row.parent and not _reaches_the_top(rows, name):
            rows[name] = msgspec.structs.replace(row, parent="")
    return tuple(_within_limits(rows))


def usage_rows(queues: Iterable[Queue]) -> tuple[UserUsage, ...]:
    """Decayed usage as queues show it; amounts that make no sense are left out."""
    return tuple(
        UserUsage(queue=queue.metadata.name, user=user, seconds=seconds, at=queue.status.decayed_at)
        for queue in sorted(queues, key=lambda each: each.metadata.name)
        for user, seconds in sorted(queue.status.decayed_usage.items())
        if math.isfinite(seconds) and seconds >= 0.0 and math.isfinite(queue.status.decayed_at)
    )


def _usable_row(queue: Queue) -> Row:
    try:
        # of a queue that was written past admission: a weight of -1 makes every decision fail
        problem = next((found.message for found in QUEUE.check(queue)), "")
        row = Row(name=queue.metadata.name) if problem else queue_row(queue)
    except Exception as error:  # noqa: BLE001 - its jobs keep what they hold; the other queues go on
        _LOG.warning("queue %s counts without limits: %s", queue.metadata.name, error)
        return Row(name=queue.metadata.name)
    if problem:
        _LOG.warning("queue %s counts without limits: %s", queue.metadata.name, problem)
    return row


def queue_row(queue: Queue) -> Row:
    """One queue as it stands."""
    spec, status = queue.spec, queue.status
    return Row(
        name=queue.metadata.name,
        parent=spec.parent,
        nominal=_amounts(spec.nominal),
        guaranteed=_amounts(spec.guaranteed),
        limit=_amounts(spec.quota),
        borrowing=_amounts(spec.borrowing),
        lending=_amounts(spec.lending),
        weight=spec.weight,
        priority=spec.priority,
        fenced=spec.fenced,
        jobs=spec.quota.jobs,
        namespaces=spec.namespaces,
        highest={name: priority_of(value) for name, value in spec.highest_priority.items()},
        user_limit=_amounts(spec.user_limit),
        user_jobs=spec.user_limit.jobs,
        minimum_seconds=float(spec.min_runtime or 0.0),
        budgets=tuple(
            Budget(
                name=budget.name,
                resource=budget.resource,
                hours=budget.hours,
                spent=status.spent.get(budget.name, 0.0),
            )
            for budget in spec.budgets
        ),
    )


def _amounts(amounts: Amounts | Quota) -> dict[str, float]:
    named = {"cpu": amounts.cpu, "memory": amounts.memory, "gpu": amounts.gpu}
    return {name: float(amount) for name, amount in named.items() if amount is not None}


def _reaches_the_top(rows: Mapping[str, Row], name: str) -> bool:
    seen = {name}
    while parent := rows[name].parent:
        if parent not in rows or parent in seen:
            return False
        seen.add(parent)
        name = parent
    return True


def _within_limits(rows: dict[str, Row]) -> Iterator[Row]:
    below: dict[str, list[str]] = {name: [] for name in rows}
    for name, row in rows.items():
        if row.parent:
            below[row.parent].append(name)
    nominal = {name: dict(row.nominal) for name, row in rows.items()}
    for name, row in _from_the_top(rows):
        for resource, limit in row.limit.items():
            total = _total(name, resource, nominal, below)
            if total > limit:
                _scale(name, resource, limit / total, nominal, below)
    for name, row in rows.items():
        own = {resource: _total(name, resource, nominal, below) for resource in row.guaranteed}
        kept = {resource: min(amount, own[resource]) for resource, amount in row.guaranteed.items()}
        yield msgspec.structs.replace(row, nominal=nominal[name], guaranteed=kept)


def _from_the_top(rows: Mapping[str, Row]) -> list[tuple[str, Row]]:
    def depth(name: str) -> int:
        parent = rows[name].parent
        return 1 + depth(parent) if parent else 0

    return sorted(rows.items(), key=lambda item: (depth(item[0]), item[0]))


def _total(name: str, resource: str, nominal: Nominal, below: Mapping[str, list[str]]) -> float:
    """Its own, or what those below it have together where that is more."""
    children = sum(_total(child, resource, nominal, below) for child in below[name])
    return max(nominal[name].get(resource, 0.0), children)


def _scale(
    name: str, resource: str, factor: float, nominal: Nominal, below: Mapping[str, list[str]]
) -> None:
    if resource in nominal[name]:
        nominal[name][resource] *= factor
    for child in below[name]:
        _scale(child, resource, factor, nominal, below)
