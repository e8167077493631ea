"""The verbs that change state, as edits of a spec: pure, so that every client does them alike."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.objects.elastic import is_coordinator, own_roles
from shoal.objects.errors import Conflict, Invalid, NotFound, Problem
from shoal.objects.job import Job, Role
from shoal.objects.nearest import nearest
from shoal.objects.node import Node, Taint

__all__ = ["DRAIN", "cancelled", "cordoned", "drained", "lost", "scaled", "suspended"]

DRAIN = Taint(key="shoal.dev/drain", effect="NoExecute")
"""What `shoal drain` puts on a node and `shoal uncordon` takes away."""

FINISHED = ("Succeeded", "Failed", "Cancelled")


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


def scaled(job: Job, replicas: int, *, role: str = "", min_replicas: int | None = None) -> Job:
    """Give a role another number of tasks; `min_replicas` also changes the least it runs with. A
    minimum above the new number comes down to it.

    Raises:
        Conflict: the job has finished.
        Invalid: the job has several roles and none is named, or the numbers make no sense.
        NotFound: no such role.
    """
    if job.status.phase in FINISHED:
        raise Conflict(f"job {job.metadata.name} has {_ended(job)} and cannot be scaled")
    if replicas < 1:
        raise Invalid(
            "a role has at least one task",
            (Problem("replicas", f"{replicas} is less than 1"),),
            hint=f"to stop all of its tasks for now: shoal suspend job/{job.metadata.name}",
        )
    chosen = _role(job, role)
    least = chosen.min_replicas if min_replicas is None else min_replicas
    if least is not None and min_replicas is None:
        least = min(least, replicas)
    changed = msgspec.structs.replace(chosen, replicas=replicas, min_replicas=least)
    roles = tuple(changed if each is chosen else each for each in job.spec.roles)
    return _with_spec(job, roles=roles)


def cordoned(node: Node, unschedulable: bool) -> Node:
    """Let nothing new start there, or (False) let tasks start again; that also ends a drain."""
    taints = tuple(taint for taint in node.spec.taints if unschedulable or taint != DRAIN)
    return _with_spec(node, unschedulable=unschedulable, taints=taints)


def drained(node: Node) -> Node:
    """Let nothing new start there and move away what runs."""
    taints = node.spec.taints if DRAIN in node.spec.taints else (*node.spec.taints, DRAIN)
    return _with_spec(node, unschedulable=True, taints=taints)


def lost(node: Node, gone: bool = True) -> Node:
    """Declare that the node is gone for good, so that its tasks start elsewhere; or take that back."""
    return _with_spec(node, lost=gone)


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
