"""The access rules: one table of the least role for each verb and each action.

| role | may |
| --- | --- |
| viewer | read the objects, logs, events and usage of a namespace |
| user | viewer, and create, change and delete jobs and secrets there, and run commands beside tasks |
| manager | user, and read the audit events of the namespace and give roles up to manager in it |
| admin | everything, in every namespace only as a cluster-wide role |

A role is bound to a namespace or, cluster-wide, to all of them and to the kinds that belong to none
(queues, nodes: any user reads them, cluster-wide managers change them). The token of a job is no role:
it reads its own job with its logs and tasks, and runs commands beside its own tasks.

Pure: the decision depends on the arguments alone, and is made before anything is read, so that a
refusal does not say whether the object exists.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from shoal.objects.account import ROLES, Role
from shoal.objects.errors import Forbidden
from shoal.objects.kinds import JOB, KINDS, LEASE, Kind
from shoal.store.base import Actor, Verb

Least = Literal["member", Role]
"""`member`: any role in any namespace will do."""

Action = Literal[
    "tasks", "logs", "exec", "secrets", "explain", "history", "usage",
    "audit", "grant",
    "inventory", "metrics", "users", "tokens", "server",
]  # fmt: skip
"""What can be asked beside the verbs of the store."""

NAMESPACED: MappingProxyType[Verb, Role] = MappingProxyType({
    "get": "viewer", "list": "viewer", "watch": "viewer",
    "create": "user", "update": "user", "delete": "user",
    "patch_status": "admin",
})  # fmt: skip
"""Least role in the namespace, for objects that live in one."""

CLUSTER: MappingProxyType[Verb, Least] = MappingProxyType({
    "get": "member", "list": "member", "watch": "member",
    "create": "manager", "update": "manager", "delete": "manager",
    "patch_status": "admin", "lease": "admin",
})  # fmt: skip
"""Least cluster-wide role, for objects that belong to the whole cluster."""

ACTIONS: MappingProxyType[Action, Least] = MappingProxyType({
    # in the namespace that is named, cluster-wide where none is
    "tasks": "viewer", "logs": "viewer", "explain": "viewer", "history": "viewer", "usage": "viewer",
    "exec": "user", "secrets": "user", "audit": "manager", "grant": "manager",
    # of the cluster
    "inventory": "member", "metrics": "viewer", "users": "admin", "tokens": "admin", "server": "admin",
})  # fmt: skip

_OF_CLUSTER: frozenset[Action] = frozenset(("inventory", "metrics", "users", "tokens", "server"))
_OWN_JOB: frozenset[Action] = frozenset(("tasks", "exec", "logs"))
"""What a job's token allows on the job itself, beside reading it."""
_RANK = {role: rank for rank, role in enumerate(ROLES)}


def authorise(actor: Actor, verb: Verb, kind: Kind, namespace: str, name: str) -> None:
    """See `shoal.store.base.Authorise`."""
    if "system" in actor.roles:
        return
    if actor.job is not None:
        if verb == "get" and kind.name == JOB.name and (namespace, name) == actor.job[:2]:
            return
        raise Forbidden(f"the token of job {actor.job[1]} does not allow {verb} of {kind.plural}")
    if kind.name not in KINDS and kind.name != LEASE.name:
        raise Forbidden(f"{kind.plural} are internal: only the platform reads and writes them")
    least = NAMESPACED.get(verb, "admin") if kind.namespaced else CLUSTER[verb]
    if verb == "patch_status" and any(role.startswith("controller:") for role in actor.roles):
        return  # the store binds the writer's name to the role
    if not allows(actor, least, namespace if kind.namespaced else ""):
        space = namespace if kind.namespaced else None
        raise _refusal(actor, f"{verb} {kind.plural}", least, space)


def require(actor: Actor, action: Action, namespace: str = "", name: str = "") -> None:
    """Refuse an action on a job (or, unnamed, on the namespace or the cluster) that is not allowed.

    Raises:
        Forbidden: the actor lacks the role.
    """
    if "system" in actor.roles:
        return
    if actor.job is not None:
        if action in _OWN_JOB and (namespace, name) == actor.job[:2]:
            return
        of = f" of job {name}" if name else ""
        raise Forbidden(f"the token of job {actor.job[1]} does not allow {action}{of}")
    if not allows(actor, ACTIONS[action], namespace):
        space = None if action in _OF_CLUSTER else namespace
        raise _refusal(actor, f"use {action}", ACTIONS[action], space)


def allows(actor: Actor, least: Least, namespace: str) -> bool:
    """Whether the actor has at least this role in the namespace ("": in the whole cluster)."""
    if least == "member":
        return bool(actor.roles or actor.bindings)
    held = (_RANK.get(role, -1) for role in actor.roles_in(namespace))
    return max(held, default=-1) >= _RANK[least]


def _refusal(actor: Actor, what: str, least: Least, namespace: str | None) -> Forbidden:
    """`namespace`: "" where one could be named and is not, None for what is of the cluster."""
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    if least == "member":
        return Forbidden(f"{actor.name} may not {what}: it has no role", hint="ask an admin for one")
    hint = "shoal whoami shows your roles"
    if namespace == "" and actor.bindings:
        spaces = ", ".join(dict.fromkeys(space for space, _ in actor.bindings))
        hint += f"; name a namespace with -n, such as {spaces}"
    return Forbidden(f"{actor.name} may not {what} {where}: that needs the role {least}", hint=hint)
