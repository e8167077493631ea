"""What must hold between the fields of a Job: its roles, gang, array, limits and runtime; and which of
them may change after creation.

Fields of mechanisms that do not exist yet are refused unless left at their default: a job must never run
with less than what it asked for. Most of a running job cannot change, because its tasks were placed, and
got their environment, for what its spec said.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterable, Iterator, Sequence

from shoal.objects.codec import changed_fields
from shoal.objects.elastic import is_coordinator, is_platforms_own, own_roles
from shoal.objects.job import (
    FINISHED,
    Job,
    JobSpec,
    Resources,
    RestartRule,
    Role,
    RoleTopology,
    Topology,
    priority_problem,
)
from shoal.objects.nearest import did_you_mean
from shoal.objects.paths import Finding, Path
from shoal.objects.ranges import IndexSet
from shoal.objects.secret import is_key, is_variable
from shoal.objects.selectors import label_key_problem, label_value_problem

LARGEST_JOB = 100_000
"""Tasks, or array indices, of one job."""
MOST_DEPENDENCIES = 1000
"""Jobs that one job waits for."""
LONGEST_CURVE = 4096
"""Points of a declared curve: what it says of the largest size holds for all beyond."""
_LONGEST_PATH_BYTES = 4095
"""Linux opens none that is longer."""
FIXED_RUNTIMES = frozenset({"torchrun", "tensorflow", "mpi", "jax", "xgboost", "paddle"})
"""Their world size is fixed when a gang starts."""

_ROLES: Path = ("spec", "roles")


def check(spec: JobSpec) -> Iterable[Finding]:
    """Everything wrong with the spec of a Job that has the right types."""
    yield from _roles(spec)
    for at, role in enumerate(spec.roles):
        waits = spec.runtime == "mpi" and role.name == "worker" and len(spec.roles) > 1
        yield from _check_role(role, (*_ROLES, at), may_wait=waits)
    yield from _gang(spec)
    yield from _array(spec)
    yield from _outcome(spec)
    yield from _limits(spec)
    yield from _dependencies(spec)
    yield from _topology(spec)
    yield from _speed(spec)
    yield from _runtime(spec)
    yield from _ports(spec)
    yield from _strict_folders(spec)
    if problem := priority_problem(spec.priority):
        yield Finding(("spec", "priority"), problem)


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
    yield from _restart_rules(spec.restart.rules, ("spec", "restart", "rules"))


def _limits(spec: JobSpec) -> Iterable[Finding]:
    limits = spec.limits
    for name, seconds in (("wallTime", limits.wall_time), ("idleTimeout", limits.idle_timeout)):
        if seconds is not None and seconds <= 0:
            yield Finding(("spec", "limits", name), "must be greater than 0")
    hours = limits.node_hours
    if hours is not None and not (math.isfinite(hours) and hours > 0):
        message = f"a budget is a number of hours above 0; found {hours:g}"
        yield Finding(("spec", "limits", "nodeHours"), message)


def _dependencies(spec: JobSpec) -> Iterable[Finding]:
    path: Path = ("spec", "after")
    if len(spec.after) > MOST_DEPENDENCIES:
        yield Finding(path, f"a job waits for at most {MOST_DEPENDENCIES} jobs; found {len(spec.after)}")
    seen: dict[str, Path] = {}
    for at, dependency in enumerate(spec.after):
        where: Path = (*path, at, "job")
        if dependency.job in seen:
            message = f"job {dependency.job} is named twice: `on: end` means success or failure"
            yield Finding(where, message, (seen[dependency.job],))
        seen.setdefault(dependency.job, where)


def _topology(spec: JobSpec) -> Iterable[Finding]:
    if spec.topology is not None:
        path: Path = ("spec", "topology")
        yield from _levels(spec.topology, path)
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


def _strict_folders(spec: JobSpec) -> Iterable[Finding]:
    """A strict task has /run, /dev and temporary folders of its own; /proc and /sys are read-only."""
    for at, role in enumerate(spec.roles):
        directory = posixpath.normpath(role.working_directory)
        top = "/".join(directory.split("/")[:2])
        system = top in ("/proc", "/sys", "/dev", "/run") and not directory.startswith("/dev/shm/")
        if spec.isolation == "strict" and (system or directory in ("/tmp", "/var/tmp")):
            message = (
                f"a strict job cannot work in {directory[:60]}: it sees nothing of the machine's {top}"
            )
            yield Finding((*_ROLES, at, "workingDirectory"), message, (("spec", "isolation"),))


def _counts(roles: tuple[Role, ...]) -> tuple[Path, ...]:
    return tuple((*_ROLES, at, name) for at in range(len(roles)) for name in ("replicas", "minReplicas"))


_MOST_PORTS = 64
_LEAST_MEMORY = 1 << 20
"""Less than this holds no process: a unit was forgotten."""
_LEAST_SHARE = 0.001
"""Devices are shared out in thousandths."""


def _check_role(role: Role, path: Path, *, may_wait: bool = False) -> Iterable[Finding]:
    """Everything wrong with a role that has the right types; `path` is where it stands.

    `may_wait`: the runtime has something for its tasks to do where the role names no command.
    """
    if role.min_replicas is not None and role.min_replicas > role.replicas:
        message = f"{role.min_replicas} is more than replicas, which is {role.replicas}"
        yield Finding((*path, "minReplicas"), message, ((*path, "replicas"),))
    yield from _command(role, path, may_wait)
    yield from _environment(role, path)
    yield from _secrets(role, path)
    yield from _readiness(role, path)
    yield from _resources(role.resources, (*path, "resources"))
    yield from _role_ports(role, path)
    yield from _placement(role, path)
    yield from _restart_rules(role.restart_rules, (*path, "restartRules"))


def _restart_rules(rules: tuple[RestartRule, ...], path: Path) -> Iterable[Finding]:
    """Everything wrong with a list of restart rules."""
    decided: dict[int, int] = {}
    for at, rule in enumerate(rules):
        if not rule.exit_codes:
            yield Finding((*path, at, "exitCodes"), "a rule names at least one exit code")
        for position, code in enumerate(rule.exit_codes):
            where = (*path, at, "exitCodes", position)
            if code == 0:
                yield Finding(where, "exit code 0 is success, and rules are about failures")
            elif code in decided:
                message = f"exit code {code} is decided by rule {decided[code]} already"
                yield Finding(where, message, ((*path, decided[code]),))
            else:
                decided[code] = at


def _levels(topology: Topology | RoleTopology, path: Path) -> Iterable[Finding]:
    """What is wrong with the names of levels; whether there are such levels, only the cluster knows."""
    for field, level in named_levels(topology).items():
        if problem := label_key_problem(level):
            yield Finding((*path, field), problem)


def _command(role: Role, path: Path, may_wait: bool) -> Iterable[Finding]:
    if role.image:
        message = "image needs a cluster that runs containers; this one runs processes"
        yield Finding((*path, "image"), message)
    if role.template:
        message = "template is a pod's and needs a Kubernetes cluster; this one runs processes"
        yield Finding((*path, "template"), message)
    if role.volumes:
        message = "volumes need a cluster that runs containers; this one runs processes"
        yield Finding((*path, "volumes"), message)
    if not (role.command or role.image or role.template or (may_wait and not role.args)):
        said = "args are given without the program" if role.args else "a task needs a program"
        yield Finding((*path, "command"), f"{said}, such as [python, train.py]", ((*path, "args"),))
    elif role.command and not role.command[0]:
        yield Finding((*path, "command", 0), "the program's name is empty")
    for name, words in (("command", role.command), ("args", role.args)):
        for at, word in enumerate(words):
            if "\0" in word:
                yield Finding((*path, name, at), "no argument of a program can hold a NUL character")
    directory = role.working_directory
    if directory and (not directory.startswith("/") or "\0" in directory):
        yield Finding((*path, "workingDirectory"), f"{directory[:60]!r} is not an absolute path")
    elif len(directory.encode()) > _LONGEST_PATH_BYTES:
        message = f"a path has at most {_LONGEST_PATH_BYTES} bytes, this one {len(directory.encode())}"
        yield Finding((*path, "workingDirectory"), message)


def _environment(role: Role, path: Path) -> Iterable[Finding]:
    for name, value in role.env.items():
        where = (*path, "env", name)
        yield from _variable(name, where)
        if "\0" in value:
            yield Finding(where, "the value of a variable cannot hold a NUL character")


_OF_PLATFORM = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "LANG", "TZ", "VIRTUAL_ENV")
)
"""Variables that a task has anyway, and whose value is no secret."""
_SETTABLE = ("SHOAL_SLOTS",)
"""Variables of the platform that people may set: the slots of each MPI worker."""


def _variable(name: str, where: Path) -> Iterable[Finding]:
    if not name or "=" in name or "\0" in name:
        yield Finding(where, "the name of a variable is not empty and holds no = and no NUL")
    elif name.startswith("SHOAL_") and name not in _SETTABLE:
        yield Finding(where, "names that begin with SHOAL_ are set by the platform: choose another")


def _secrets(role: Role, path: Path) -> Iterable[Finding]:
    given: dict[tuple[str, str], Path] = {("env", name): (*path, "env", name) for name in role.env}
    for at, use in enumerate(role.secrets):
        where: Path = (*path, "secrets", at)
        if bool(use.env) == bool(use.file):
            message = "a secret is given as a variable or as a file: write exactly one of env and file"
            yield Finding(where, message)
        for what, name in (("key", use.key), ("file", use.file)):
            if name and not is_key(name):
                message = f"{name[:60]!r} is not made of letters, digits, dots, dashes and underscores"
                yield Finding((*where, what), message)
        if use.env and not is_variable(use.env):
            message = f"{use.env[:60]!r} is not the name of a variable: letters, digits and underscores"
            yield Finding((*where, "env"), message)
        elif use.env in _OF_PLATFORM:
            yield Finding((*where, "env"), f"{use.env} is set by the platform: choose another name")
        elif use.env:
            yield from _variable(use.env, (*where, "env"))
        for what, name in (("env", use.env), ("file", use.file)):
            if name and (what, name) in given:
                noun = "variable" if what == "env" else "file"
                message = f"the {noun} {name} is given twice"
                yield Finding((*where, what), message, (given[what, name],))
            given.setdefault((what, name), (*where, what))


def _readiness(role: Role, path: Path) -> Iterable[Finding]:
    probe = role.readiness
    if probe is None:
        return
    where: Path = (*path, "readiness")
    ways = [way for way in (probe.command, probe.tcp, probe.http) if way]
    if len(ways) != 1:
        yield Finding(where, "a probe has exactly one of command, tcp and http")
    ports = [port.name for port in role.ports]
    for what, text in (("tcp", probe.tcp), ("http", probe.http)):
        name = text.partition("/")[0]
        if text and name not in ports:
            message = f"no port of the role is called {name}{did_you_mean(name, ports)}"
            yield Finding((*where, what), message, ((*path, "ports"),))
    for what, seconds in (
        ("periodSeconds", probe.period_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
    ):
        if not (math.isfinite(seconds) and seconds > 0):
            yield Finding((*where, what), f"must be greater than 0; found {seconds:g}")
    if probe.failures < 1:
        yield Finding((*where, "failures"), f"must be at least 1; found {probe.failures}")


def _resources(resources: Resources, path: Path) -> Iterable[Finding]:
    limit, memory = resources.cpu_limit, resources.memory
    if limit is not None and limit <= 0:
        yield Finding((*path, "cpuLimit"), "must be greater than 0")
    elif limit is not None and limit < resources.cpu:
        message = f"{limit.text()} is less than cpu, which is {resources.cpu.text()}"
        yield Finding((*path, "cpuLimit"), message, ((*path, "cpu"),))
    if memory is not None and memory < _LEAST_MEMORY:
        number = int(memory)
        meant = f"; did you mean {number}{'Gi' if number <= 64 else 'Mi'}?" if number else ""
        yield Finding((*path, "memory"), f"no process fits into {number} bytes{meant}")
    share = resources.gpu_share
    if share is None:
        return
    if not _LEAST_SHARE <= share < 1:
        whole = f"; did you mean gpu: {int(share)}?" if share >= 1 and share == int(share) else ""
        message = (
            f"a part of a device is a number from {_LEAST_SHARE} to below 1; found {share:g}{whole}"
        )
        yield Finding((*path, "gpuShare"), message)
    elif resources.gpu:
        message = "a task has whole devices or a part of one: leave gpu or gpuShare out"
        yield Finding((*path, "gpuShare"), message, ((*path, "gpu"),))


def _role_ports(role: Role, path: Path) -> Iterable[Finding]:
    if len(role.ports) > _MOST_PORTS:
        yield Finding(
            (*path, "ports"), f"a task has at most {_MOST_PORTS} ports; found {len(role.ports)}"
        )
        return
    names: set[str] = set()
    numbers: set[int] = set()
    for at, port in enumerate(role.ports):
        where = (*path, "ports", at)
        if port.name in names:
            yield Finding((*where, "name"), f"two ports are called {port.name}")
        if port.port in numbers:
            yield Finding((*where, "port"), f"two ports of this role have the number {port.port}")
        names.add(port.name)
        numbers |= {port.port} - {0}


def _placement(role: Role, path: Path) -> Iterable[Finding]:
    for key, value in role.node_selector.items():
        for problem in filter(None, (label_key_problem(key), label_value_problem(value))):
            yield Finding((*path, "nodeSelector", key), problem)
    for at, toleration in enumerate(role.tolerations):
        where = (*path, "tolerations", at)
        if toleration.key and (problem := label_key_problem(toleration.key)):
            yield Finding((*where, "key"), problem.replace("a label key", "a taint's key"))
        if not toleration.key and toleration.value is not None:
            yield Finding((*where, "value"), "a value is tolerated together with its key")
    if role.topology is not None:
        yield from _levels(role.topology, (*path, "topology"))


NODE_LEVEL = "node"
"""The narrowest level, which is always there."""


def levels_problem(levels: Sequence[str]) -> str:
    """What is wrong with the levels of a cluster, in words; empty when nothing is."""
    for at, level in enumerate(levels):
        if level == NODE_LEVEL:
            return f"{NODE_LEVEL} is always the last level: leave it out"
        if level in levels[:at]:
            return f"the level {level} is named twice"
        if problem := label_key_problem(level):
            return problem
    return ""


def named_levels(topology: Topology | RoleTopology) -> dict[str, str]:
    """Field to the level that it names; those that name none are left out."""
    names = {"required": topology.required, "preferred": topology.preferred}
    if isinstance(topology, Topology):
        names["spread"] = topology.spread
    return {field: level for field, level in names.items() if level}


def unknown_levels(spec: JobSpec, levels: Sequence[str]) -> list[Finding]:
    """Each level that the job names and that a cluster with these does not have."""
    known = (*levels, NODE_LEVEL)
    return [
        Finding(
            path,
            f"the topology has no level {level}: there {'are' if levels else 'is'} {', '.join(known)}"
            f"{did_you_mean(level, known)}",
        )
        for path, level in _named(spec)
        if level not in known
    ]


def _named(spec: JobSpec) -> Iterator[tuple[Path, str]]:
    if spec.topology is not None:
        for field, level in named_levels(spec.topology).items():
            yield ("spec", "topology", field), level
    for at, role in enumerate(spec.roles):
        if role.topology is not None:
            for field, level in named_levels(role.topology).items():
                yield ("spec", "roles", at, "topology", field), level


_ALWAYS = frozenset({"ttlAfterFinished", "cleanUp", "cancelled"})
"""Of a job, until it is deleted."""
_UNFINISHED = frozenset(
    {"suspend", "priority", "preemptible", "speed", "limits", "gracePeriod", "queue", "roles"}
)
"""Of a job, until it has finished."""
_SCALABLE = frozenset({"replicas", "minReplicas"})
"""Of a role."""
_AGAIN = "cannot be changed after creation: delete the job and create it again"


def check_change(old: Job, new: Job) -> Iterator[Finding]:
    """Which changes of spec are refused; `old` is as stored, with its status."""
    finished = old.status.phase in FINISHED
    for name in changed_fields(old.spec, new.spec):
        path: Path = ("spec", name)
        if name not in _ALWAYS | _UNFINISHED:
            yield Finding(path, _AGAIN)
        elif finished and name not in _ALWAYS:
            message = f"the job has finished ({old.status.phase}): create it again to run it again"
            yield Finding(path, message)
        elif name == "cancelled" and not new.spec.cancelled:
            yield Finding(path, "a cancelled job cannot be revived: create it again")
        elif name == "queue" and old.status.phase not in ("Pending", "Suspended"):
            yield Finding(path, "a job changes its queue only while it is Pending or Suspended")
        elif name == "roles":
            yield from _changed_roles(old.spec, new.spec)


def _changed_roles(old: JobSpec, new: JobSpec) -> Iterator[Finding]:
    path: Path = ("spec", "roles")
    if [role.name for role in old.roles] != [role.name for role in new.roles]:
        yield Finding(path, f"the roles and their order {_AGAIN}")
        return
    for at, (before, after) in enumerate(zip(old.roles, new.roles, strict=True)):
        for name in changed_fields(before, after):
            if name not in _SCALABLE:
                yield Finding((*path, at, name), _AGAIN)
