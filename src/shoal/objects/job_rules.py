"""The rules of a Job: between its roles, its gang, its array, its limits and its runtime.

What belongs to one role alone is in `role_rules`. Fields whose mechanism does not exist yet are refused
unless left at their default: a job must never run with less than what it asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from shoal.objects import role_rules
from shoal.objects.elastic import is_coordinator, is_platforms_own, own_roles
from shoal.objects.job import PRIORITIES, JobSpec, Role
from shoal.objects.nearest import did_you_mean
from shoal.objects.paths import Finding, Path
from shoal.objects.ranges import IndexSet

__all__ = ["FIXED_RUNTIMES", "LARGEST_JOB", "LONGEST_CURVE", "check", "is_name", "priority_problem"]

LARGEST_JOB = 100_000
"""Tasks, or array indices, of one job."""
LONGEST_CURVE = 4096
"""Points of a declared curve: what it says of the largest size holds for all beyond."""
FIXED_RUNTIMES = frozenset({"torchrun", "tensorflow", "mpi", "jax", "xgboost", "paddle"})
"""Their world size is fixed when a gang starts."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ROLES: Path = ("spec", "roles")


def check(spec: JobSpec) -> Iterable[Finding]:
    """Everything wrong with the spec of a Job whose types are right."""
    yield from _roles(spec)
    for at, role in enumerate(spec.roles):
        waits = spec.runtime == "mpi" and role.name == "worker" and len(spec.roles) > 1
        yield from role_rules.check(role, (*_ROLES, at), may_wait=waits)
    yield from _gang(spec)
    yield from _array(spec)
    yield from _outcome(spec)
    yield from _limits(spec)
    yield from _topology(spec)
    yield from _speed(spec)
    yield from _runtime(spec)
    yield from _ports(spec)
    if problem := priority_problem(spec.priority):
        yield Finding(("spec", "priority"), problem)


def priority_problem(priority: int | str) -> str:
    """What is wrong with a priority, in words; empty when nothing is."""
    if isinstance(priority, str):
        if priority in PRIORITIES:
            return ""
        names = ", ".join(PRIORITIES)
        hint = did_you_mean(priority, PRIORITIES) or f"; write a number or one of {names}"
        return f"{priority!r} is no priority{hint}"
    if -(2**31) <= priority < 2**31:
        return ""
    return f"a priority lies between {-(2**31)} and {2**31 - 1}"


def is_name(text: str) -> bool:
    """Whether the text can be the name of a namespace."""
    return _NAME.fullmatch(text) is not None


def _roles(spec: JobSpec) -> Iterable[Finding]:
    if not spec.roles:
        yield Finding(_ROLES, "a job has at least one role")
    names: set[str] = set()
    for at, role in enumerate(spec.roles):
        if role.name in names:
            yield Finding((*_ROLES, at, "name"), f"two roles are called {role.name}")
        names.add(role.name)
    total = sum(role.replicas for role in spec.roles)
    if total > LARGEST_JOB:
        message = f"a job has at most {LARGEST_JOB} tasks; these roles have {total}"
        yield Finding(_ROLES, message, _counts(spec.roles))


def _gang(spec: JobSpec) -> Iterable[Finding]:
    if spec.gang.min is None:
        return
    path: Path = ("spec", "gang", "min")
    if spec.array is not None:
        yield Finding(path, "the indices of an array start apart: gang is for other jobs")
        return
    total = sum(role.replicas for role in own_roles(spec))
    if spec.gang.min > total:
        message = f"is more than the {total} tasks of all roles"
        yield Finding(path, f"{spec.gang.min} {message}", _counts(spec.roles))
    fixed = spec.runtime in FIXED_RUNTIMES
    least = sum(role.min_replicas or (role.replicas if fixed else 0) for role in spec.roles)
    if spec.gang.min < least:
        why = f"of the roles add up to {least}"
        if fixed and any(role.min_replicas is None for role in spec.roles):
            why += f" (under {spec.runtime} a role without minReplicas has a fixed size)"
        involved = (*_counts(spec.roles), ("spec", "runtime"))
        yield Finding(path, f"{spec.gang.min} is too few: the minimums {why}", involved)


def _array(spec: JobSpec) -> Iterable[Finding]:
    if spec.array is None:
        return
    path: Path = ("spec", "array", "indices")
    try:
        indices = IndexSet.parse(spec.array.indices)
    except ValueError as error:
        yield Finding(path, str(error))
        indices = IndexSet.span(1)
    if not indices:
        yield Finding(path, "an array has at least one index, such as 0-99")
    elif len(indices) > LARGEST_JOB:
        yield Finding(path, f"an array has at most {LARGEST_JOB} indices; found {len(indices)}")
    if len(spec.roles) > 1:
        yield Finding(("spec", "roles"), "an array has one role", (("spec", "array"),))
    for at, role in enumerate(spec.roles):
        involved = (("spec", "array"),)
        if role.replicas != 1:
            message = "an array runs its role once per index: leave replicas at 1"
            yield Finding((*_ROLES, at, "replicas"), message, involved)
        if role.min_replicas is not None:
            message = "an array has no minReplicas: its indices are scheduled apart"
            yield Finding((*_ROLES, at, "minReplicas"), message, involved)
    if spec.runtime != "plain":
        message = (
            f"the indices of an array have no peers, so there is nothing for {spec.runtime} to join"
        )
        yield Finding(("spec", "runtime"), message, (("spec", "array"),))
    if spec.restart.scope == "Gang":
        message = "the indices of an array are restarted apart: leave scope out"
        yield Finding(("spec", "restart", "scope"), message, (("spec", "array"),))


def _outcome(spec: JobSpec) -> Iterable[Finding]:
    names = [role.name for role in own_roles(spec)]
    if spec.success.role and spec.success.role not in names:
        hint = did_you_mean(spec.success.role, names)
        involved = tuple((*_ROLES, at, "name") for at in range(len(names)))
        message = f"no role is called {spec.success.role}{hint}"
        yield Finding(("spec", "success", "role"), message, involved)
    yield from role_rules.restart_rules(spec.restart.rules, ("spec", "restart", "rules"))


def _limits(spec: JobSpec) -> Iterable[Finding]:
    limits = spec.limits
    for name, seconds in (("wallTime", limits.wall_time), ("idleTimeout", limits.idle_timeout)):
        if seconds is not None and seconds <= 0:
            yield Finding(("spec", "limits", name), "a limit is longer than nothing")
    hours = limits.node_hours
    if hours is not None and not (math.isfinite(hours) and hours > 0):
        message = f"a budget is a number of hours above 0; found {hours:g}"
        yield Finding(("spec", "limits", "nodeHours"), message)


def _topology(spec: JobSpec) -> Iterable[Finding]:
    if spec.topology is not None:
        path: Path = ("spec", "topology")
        yield from role_rules.levels(spec.topology, path)
        if spec.topology.required and spec.topology.required == spec.topology.spread:
            message = (
                f"all tasks are within one {spec.topology.required}: there is nothing to spread over"
            )
            yield Finding((*path, "spread"), message, ((*path, "required"),))


def _speed(spec: JobSpec) -> Iterable[Finding]:
    if spec.speed is None:
        return
    path: Path = ("spec", "speed")
    for at, progress in enumerate(spec.speed.curve):
        if not (math.isfinite(progress) and progress >= 0):
            message = f"progress per second is a number of at least 0; found {progress:g}"
            yield Finding((*path, "curve", at), message)
    if spec.speed.curve and not any(spec.speed.curve):
        yield Finding((*path, "curve"), "a job that gets on with no number of tasks never ends")
    if len(spec.speed.curve) > LONGEST_CURVE:
        message = f"a curve has at most {LONGEST_CURVE} points; found {len(spec.speed.curve)}"
        yield Finding((*path, "curve"), message)
    work = spec.speed.work
    if work is not None and not (math.isfinite(work) and work > 0):
        yield Finding((*path, "work"), f"work is a number above 0; found {work:g}")


def _runtime(spec: JobSpec) -> Iterable[Finding]:
    by_name = {role.name: (at, role) for at, role in enumerate(spec.roles)}
    single: tuple[str, ...] = ()
    if spec.runtime == "mpi":
        yield from _mpi(spec, by_name)
        single = ("launcher",) if len(spec.roles) > 1 else ()
    elif spec.runtime == "tensorflow":
        yield from _tensorflow(spec)
        single = ("chief", "master")
    elif spec.runtime in ("torchrun", "xgboost", "paddle"):
        single = ("master",)
    elif spec.runtime == "elastic":
        yield from _elastic(spec)
    for name in single:
        at, role = by_name.get(name, (0, None))
        if role is not None and role.replicas != 1:
            message = f"under {spec.runtime} there is one {name}"
            yield Finding((*_ROLES, at, "replicas"), message, (("spec", "runtime"),))


def _elastic(spec: JobSpec) -> Iterable[Finding]:
    for at, role in enumerate(spec.roles):
        if is_coordinator(spec, role.name) and not is_platforms_own(spec, role):
            message = (
                "the platform adds the role coordinator to elastic jobs: give this one another name"
            )
            yield Finding((*_ROLES, at, "name"), message, (("spec", "runtime"),))
    if spec.restart.scope == "Gang":
        message = "the tasks of an elastic job are restarted one by one: leave scope out"
        yield Finding(("spec", "restart", "scope"), message, (("spec", "runtime"),))


def _mpi(spec: JobSpec, by_name: dict[str, tuple[int, Role]]) -> Iterable[Finding]:
    if len(spec.roles) > 1 and set(by_name) != {"launcher", "worker"}:
        message = "under mpi a job has the roles launcher and worker, or a single role"
        names = tuple((*_ROLES, at, "name") for at in range(len(spec.roles)))
        yield Finding(_ROLES, message, (("spec", "runtime"), *names))


def _tensorflow(spec: JobSpec) -> Iterable[Finding]:
    known = ("chief", "master", "worker", "ps", "evaluator")
    for at, role in enumerate(spec.roles):
        if role.name not in known:
            message = f"tensorflow knows the roles {', '.join(known)}; found {role.name}"
            yield Finding((*_ROLES, at, "name"), message, (("spec", "runtime"),))
    chiefs = [at for at, role in enumerate(spec.roles) if role.name in ("chief", "master")]
    for at in chiefs[1:]:
        message = "tensorflow has a chief or a master, not both"
        yield Finding((*_ROLES, at, "name"), message, (("spec", "runtime"),))


def _ports(spec: JobSpec) -> Iterable[Finding]:
    """In a network of the job's own each number exists once."""
    if spec.isolation != "strict":
        return
    used: dict[int, tuple[str, Path]] = {}
    for at, role in enumerate(spec.roles):
        for position, port in enumerate(role.ports):
            path: Path = (*_ROLES, at, "ports", position, "port")
            name, other = used.setdefault(port.port, (role.name, path))
            if port.port and name != role.name:
                message = (
                    f"the roles of a strict job share a network, and {name} has {port.port} already"
                )
                yield Finding(path, message, (other, ("spec", "isolation")))


def _counts(roles: tuple[Role, ...]) -> tuple[Path, ...]:
    return tuple((*_ROLES, at, name) for at in range(len(roles)) for name in ("replicas", "minReplicas"))
