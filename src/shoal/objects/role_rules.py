"""The rules of one role of a Job."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.objects.job import Resources, RestartRule, Role, RoleTopology, Topology
from shoal.objects.levels import named_levels
from shoal.objects.paths import Finding, Path
from shoal.objects.selectors import label_key_problem, label_value_problem

__all__ = ["check", "levels", "restart_rules"]

_LEAST_MEMORY = 1 << 20
"""Less than this holds no process: a unit was forgotten."""
_LEAST_SHARE = 0.001
"""Devices are shared out in thousandths."""


def check(role: Role, path: Path, *, may_wait: bool = False) -> Iterable[Finding]:
    """Everything wrong with a role whose types are right; `path` is where it stands.

    `may_wait`: the runtime has something for its tasks to do where the role names no command.
    """
    if role.min_replicas is not None and role.min_replicas > role.replicas:
        message = f"{role.min_replicas} is more than replicas, which is {role.replicas}"
        yield Finding((*path, "minReplicas"), message, ((*path, "replicas"),))
    yield from _command(role, path, may_wait)
    yield from _environment(role, path)
    yield from _resources(role.resources, (*path, "resources"))
    yield from _ports(role, path)
    yield from _placement(role, path)
    yield from restart_rules(role.restart_rules, (*path, "restartRules"))


def restart_rules(rules: tuple[RestartRule, ...], path: Path) -> Iterable[Finding]:
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


def levels(topology: Topology | RoleTopology, path: Path) -> Iterable[Finding]:
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


def _environment(role: Role, path: Path) -> Iterable[Finding]:
    for name, value in role.env.items():
        where = (*path, "env", name)
        if not name or "=" in name or "\0" in name:
            yield Finding(where, "the name of a variable is not empty and holds no = and no NUL")
        elif name.startswith("SHOAL_"):
            yield Finding(where, "names that begin with SHOAL_ are set by the platform: choose another")
        if "\0" in value:
            yield Finding(where, "the value of a variable cannot hold a NUL character")


def _resources(resources: Resources, path: Path) -> Iterable[Finding]:
    limit, memory = resources.cpu_limit, resources.memory
    if limit is not None and limit <= 0:
        yield Finding((*path, "cpuLimit"), "nothing can run with no processor time")
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


def _ports(role: Role, path: Path) -> Iterable[Finding]:
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
        yield from levels(role.topology, (*path, "topology"))
