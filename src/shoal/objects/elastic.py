"""The coordinator of an elastic job: a role that admission adds, and what sets it apart from the others.

A job of the runtime `elastic` has one process that alone decides its membership. It is a role like any
other where capacity, quota, logs and starts are concerned; it decides nothing about the job's success,
and its own deaths are the platform's.
"""

from __future__ import annotations

import re

import msgspec

from shoal.objects.job import JobSpec, Resources, Role
from shoal.objects.quantities import Bytes, CpuMillis

COORDINATOR = "coordinator"
"""The name of the role."""

_MODULE = ("-P", "-m", "shoal.elastic.coordinator", "--api")
"""`-P`: a file of the job's folder must not stand in for a module of the library."""
_RESOURCES = Resources(cpu=CpuMillis(100), memory=Bytes(256 << 20))
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")


def with_coordinator(spec: JobSpec, python: str) -> JobSpec:
    """The spec with the coordinator's role behind the others, if it is elastic and has none yet.

    The coordinator runs under the interpreter of the job's own command, for there the library has the
    version that the workers speak; `python` is the one to use where that command is not Python.
    """
    if spec.runtime != "elastic" or coordinator_of(spec) is not None or not spec.roles:
        return spec
    program = elastic_role(spec).command[:1]
    if program and _PYTHON.fullmatch(program[0].rpartition("/")[2]):
        python = program[0]
    return msgspec.structs.replace(spec, roles=(*spec.roles, _coordinator(spec, python)))


def coordinator_of(spec: JobSpec) -> Role | None:
    """The coordinator's role, None where there is none."""
    return next((role for role in spec.roles if is_coordinator(spec, role.name)), None)


def is_coordinator(spec: JobSpec, role: str) -> bool:
    """Whether the role of that name is the platform's."""
    return role == COORDINATOR and spec.runtime == "elastic"


def own_roles(spec: JobSpec) -> tuple[Role, ...]:
    """The roles that people wrote."""
    return tuple(role for role in spec.roles if not is_coordinator(spec, role.name))


def elastic_role(spec: JobSpec) -> Role:
    """The role that consists of the members: the first that has a minimum, else the first of all."""
    roles = own_roles(spec)
    return next((role for role in roles if role.min_replicas is not None), roles[0])


def is_platforms_own(spec: JobSpec, role: Role) -> bool:
    """Whether a role called `coordinator` is the very one that the platform adds to this spec, whatever
    its interpreter: so a job that was read from the platform can be given to it again."""
    return bool(own_roles(spec) and role.command) and role == _coordinator(spec, role.command[0])


def _coordinator(spec: JobSpec, python: str) -> Role:
    worker = elastic_role(spec)
    return Role(
        name=COORDINATOR,
        command=(python, *_MODULE),
        env=worker.env,
        working_directory=worker.working_directory,
        resources=_RESOURCES,
        node_selector=worker.node_selector,
        tolerations=worker.tolerations,
    )
