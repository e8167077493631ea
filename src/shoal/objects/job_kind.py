"""The declaration of the kind Job: its columns, its state and outcome, the verbs that change it.

The Structs are in `job`, the rules between their fields and the changes that are refused in `job_rules`.
A verb is a pure edit of spec, so that every client does it alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal

import msgspec

from shoal.objects.columns import AGE, NAME, Column, age
from shoal.objects.elastic import elastic_role, is_coordinator, own_roles
from shoal.objects.errors import Conflict, Invalid, NotFound, Problem
from shoal.objects.job import (
    FINISHED,
    PHASES,
    PRIORITIES,
    Job,
    JobStatus,
    Role,
    unmet_dependencies,
)
from shoal.objects.kind import Description, Kind, Outcome, Reference, Size, State, Verb
from shoal.objects.nearest import nearest
from shoal.objects.paths import Finding
from shoal.objects.ranges import IndexSet

DEPENDENCIES_ANNOTATION = "shoal.dev/after"
"""Which jobs the names of `spec.after` meant when the job was admitted: `name=uid`, with commas."""

_RESULTS: dict[str, Literal["succeeded", "failed", "cancelled"]] = {
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Cancelled": "cancelled",
}
_RESIZED_IN_PLACE = ("elastic", "plain")
"""Runtimes in which tasks continue while others join or leave."""
_WAITING = ("Pending", "Starting", "Running")
"""Phases in which the scheduler's reason says why the job has less than it wants."""


def cancelled(job: Job) -> Job:
    """End it for good. Nothing changes for a job that has finished."""
    return job if job.status.phase in FINISHED else _with_spec(job, cancelled=True)


def suspended(job: Job, suspend: bool) -> Job:
    """Stop its tasks for now, or let it go on.

    Raises:
        Conflict: it has finished.
    """
    if job.status.phase in FINISHED:
        verb = "suspended" if suspend else "resumed"
        raise Conflict(f"job {job.metadata.name} has {_ended(job)} and cannot be {verb}")
    return _with_spec(job, suspend=suspend)


def scaled(job: Job, replicas: int | None, *, role: str = "", min_replicas: int | None = None) -> Job:
    """Give a role another number of tasks (None: the same); `min_replicas` also changes the least it
    runs with. A minimum above the new number comes down to it.

    Raises:
        Conflict: the job has finished.
        Invalid: the job has several roles and none is named, or the numbers make no sense.
        NotFound: no such role.
    """
    if job.status.phase in FINISHED:
        raise Conflict(f"job {job.metadata.name} has {_ended(job)} and cannot be scaled")
    if replicas is not None and replicas < 1:
        raise Invalid(
            "a role has at least one task",
            (Problem("replicas", f"{replicas} is less than 1"),),
            hint=f"to stop all of its tasks for now: shoal suspend job/{job.metadata.name}",
        )
    chosen = _role(job, role)
    replicas = chosen.replicas if replicas is None else replicas
    least = chosen.min_replicas if min_replicas is None else min_replicas
    if least is not None and min_replicas is None:
        least = min(least, replicas)
    changed = msgspec.structs.replace(chosen, replicas=replicas, min_replicas=least)
    roles = tuple(changed if each is chosen else each for each in job.spec.roles)
    return _with_spec(job, roles=roles)


def dependency_uids(job: Job) -> dict[str, str]:
    """The uids of the jobs in `spec.after`, by name, as admission recorded them."""
    text = job.metadata.annotations.get(DEPENDENCIES_ANNOTATION, "")
    return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)


def _role(job: Job, name: str) -> Role:
    if is_coordinator(job.spec, name):
        raise Invalid(f"there is one {name}, and it is the platform's: another role can be scaled")
    roles = own_roles(job.spec)
    names = [role.name for role in roles]
    if not name and len(names) > 1:
        raise Invalid(
            f"job {job.metadata.name} has the roles {', '.join(names)}: which one?",
            hint=f"name it: --role {names[0]}",
        )
    for role in roles:
        if not name or role.name == name:
            return role
    near = nearest(name, names)
    raise NotFound(
        f"job {job.metadata.name} has no role {name}",
        hint=f"did you mean {near}?" if near else f"its roles are {', '.join(names)}",
    )


def _ended(job: Job) -> str:
    phase = job.status.phase
    return "been cancelled" if phase == "Cancelled" else phase.lower()


def _with_spec(obj: Any, **fields: Any) -> Any:  # Any: the same kind comes back
    return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, **fields))


def _tasks(job: Job, _now: float) -> str:
    running = sum(role.running for role in job.status.roles)
    if job.spec.array is None:
        return f"{running}/{sum(role.replicas for role in job.spec.roles)}"
    ended = sum(role.succeeded + role.failed for role in job.status.roles)
    return f"{running} ({ended} ended)"


def _phase(job: Job, _now: float) -> str:
    if job.metadata.deleted:
        return "Deleting"
    if ending := _ending(job):
        return ending
    passing = ("Preempting", "Resizing", "Restarting")
    now_true = [c.type for c in job.status.conditions if c.status == "True" and c.type in passing]
    return now_true[0] if now_true else job.status.phase


def _ending(job: Job) -> str:
    """Cancelling or Suspending, from the edit of spec until the job is Cancelled or Suspended."""
    if job.status.phase in FINISHED:
        return ""
    if job.spec.cancelled:
        return "Cancelling"
    return "Suspending" if job.spec.suspend and job.status.phase != "Suspended" else ""


def _reason(job: Job, _now: float) -> str:
    if job.status.phase == "Pending" and job.status.scheduling.code:
        return job.status.scheduling.code
    return job.status.reason or "-"


def _message(job: Job, _now: float) -> str:
    waiting = job.status.phase == "Pending" and job.status.scheduling.message
    return waiting or job.status.message or "-"


def _priority(job: Job, _now: float) -> str:
    named = {number: name for name, number in PRIORITIES.items()}
    priority = job.spec.priority
    return named.get(priority, str(priority)) if isinstance(priority, int) else priority


def _elapsed(job: Job, now: float) -> str:
    return age(job.status.started, job.status.finished or now)


def _restarts(job: Job, _now: float) -> str:
    return str(job.status.restarts)


def _nodes(job: Job, _now: float) -> str:
    return ",".join(sorted({slots.node for slots in job.status.allocation.slots})) or "-"


def _exit_code(job: Job, _now: float) -> str:
    return "-" if job.status.exit_code is None else str(job.status.exit_code)


def _resize_restarts(job: Job) -> bool:
    """Whether another size means another attempt of all tasks."""
    if job.status.phase not in ("Starting", "Running"):
        return False
    if job.spec.restart.scope == "Gang":
        return True
    return job.spec.array is None and job.spec.runtime not in _RESIZED_IN_PLACE


def _check(job: Job) -> Iterable[Finding]:
    from shoal.objects.job_rules import check  # only where objects are admitted

    return check(job.spec)


def _check_status(status: JobStatus, spec: bytes) -> Iterable[Finding]:
    from shoal.objects.status_rules import check_job_status

    return check_job_status(status, spec)


def _check_change(old: Job, new: Job) -> Iterable[Finding]:
    from shoal.objects.job_rules import check_change

    return check_change(old, new)


def _references(job: Job) -> Iterator[Reference]:
    yield Reference(("spec", "queue"), "Queue", job.spec.queue)
    for at, dependency in enumerate(job.spec.after):
        yield Reference(("spec", "after", at, "job"), "Job", dependency.job)


def _describe(job: Job, _jobs: object, now: float) -> Description:
    from shoal.objects.job_text import describe

    return describe(job, now)


def _state(job: Job) -> State:
    status, held = job.status, job.status.scheduling
    starts = held.promised if status.phase == "Pending" else None
    if ending := _ending(job):
        grace = job.spec.grace_period.text()
        message = f"its tasks have been asked to stop, and are killed after {grace}"
        if not status.allocation.slots:
            message = "it holds nothing, and ends at once"
        return State(phase=ending, message=message)
    if held.code and status.phase in _WAITING:
        return State(
            phase=status.phase,
            code=held.code,
            message=held.message,
            evidence=held.evidence,
            since=held.since,
            starts=starts,
            scheduler=True,
            queued=True,
        )
    unmet = unmet_dependencies(job) if status.phase == "Pending" else ()
    return State(
        phase=status.phase,
        code=status.reason,
        message=status.message,
        evidence={"after": [f"job/{each.job} ({each.on})" for each in unmet]} if unmet else {},
        since=_since(job),
        starts=starts,
        queued=bool(status.reason) and status.phase in _WAITING and not unmet,
        size=_size(job) if status.phase == "Running" else None,
    )


def _since(job: Job) -> float:
    """Since when the job is in its phase: not since its first start, which a suspension, a preemption or
    the loss of a node may lie behind."""
    status, allocation = job.status, job.status.allocation
    if status.phase in FINISHED:
        return status.finished
    if status.phase == "Suspended":
        return allocation.changed or job.metadata.created  # when it gave back its slots
    if status.phase == "Pending":
        return max(job.metadata.created, allocation.changed)
    return max(status.started, allocation.since)


def _size(job: Job) -> Size | None:
    """Of an elastic job: the tasks that it holds, of those that it may have."""
    if job.spec.runtime != "elastic":
        return None
    role = elastic_role(job.spec)
    slots = [each.indices for each in job.status.allocation.slots if each.role == role.name]
    held = sum(len(IndexSet.parse(indices)) for indices in slots)
    return Size(held, role.replicas, f"tasks of role {role.name}")


def _outcome(job: Job) -> Outcome | None:
    status, result = job.status, _RESULTS.get(job.status.phase)
    if result is None:
        return None
    return Outcome(
        result=result,
        started=status.started,
        finished=status.finished,
        message=status.message,
        exit_code=status.exit_code,
    )


JOB = Kind(
    name="Job",
    plural="jobs",
    aliases=("j", "sjob"),
    struct=Job,
    status_writers={
        "scheduler": ("allocation", "scheduling"),
        "elastic": ("elastic",),
        "job": ("*",),
    },
    check=_check,
    check_change=_check_change,
    check_status=_check_status,
    references=_references,
    columns=(
        NAME,
        Column("PHASE", _phase),
        Column("TASKS", _tasks),
        Column("QUEUE", lambda job, now: job.spec.queue),
        Column("PRIORITY", _priority),
        AGE,
        Column("ELAPSED", _elapsed),
        Column("REASON", _reason),
        Column("RUNTIME", lambda job, now: job.spec.runtime, wide=True),
        Column("RESTARTS", _restarts, wide=True),
        Column("EXIT", _exit_code, wide=True),
        Column("NODES", _nodes, wide=True),
        Column("SUBMITTER", lambda job, now: job.metadata.submitter or "-", wide=True),
        Column("MESSAGE", _message, wide=True),
    ),
    describe=_describe,
    tasks="owned",
    phases=PHASES,
    state=_state,
    outcome=_outcome,
    verbs={
        "cancel": Verb(cancelled, "is being cancelled", "has finished already"),
        "suspend": Verb(partial(suspended, suspend=True), "is being suspended", "is suspended already"),
        "resume": Verb(partial(suspended, suspend=False), "resumed", "is not suspended"),
        "scale": Verb(scaled, "scaled", "has that size already", restarts=_resize_restarts),
    },
)
