"""The environment of every task: its identity, and the addresses of all members."""

from __future__ import annotations

from typing import Any

from shoal.objects import codec
from shoal.objects.task import RENDEZVOUS_FOLDER, Endpoint, TaskBootstrap, TaskSpec
from shoal.rendezvous.group import Group

__all__ = ["LARGEST_VARIABLE", "TASKS_FILE", "render"]

LARGEST_VARIABLE = 96 * 1024
"""Bytes of `SHOAL_TASKS`; the kernel takes 128 KiB for a variable and its name."""

TASKS_FILE = "tasks.json"


def render(group: Group, spec: TaskSpec) -> TaskBootstrap:
    """The plain contract of one task.

    `SHOAL_TASKS` is `{"role": [{"index": 0, "host": ..., "ports": {...}, "node": ...}]}` in the order
    of ranks, then those that are known and have none. One that is too large for a variable is in the
    file that `SHOAL_TASKS_FILE` names instead.
    """
    member = group.member(spec.role, spec.index)
    env = {
        "SHOAL_NAMESPACE": spec.namespace,
        "SHOAL_JOB": spec.job,
        "SHOAL_JOB_UID": spec.job_uid,
        "SHOAL_RUNTIME": group.job.spec.runtime,
        "SHOAL_TASK": spec.name,
        "SHOAL_ROLE": spec.role,
        "SHOAL_INDEX": str(spec.index),
        "SHOAL_ATTEMPT": str(spec.attempt),
        "SHOAL_INCARNATION": str(spec.incarnation),
        "SHOAL_RANK": str(group.rank(member)),
        "SHOAL_WORLD_SIZE": str(group.size),
        "SHOAL_HOST": member.host,
        "PYTHONUNBUFFERED": "1",
        **{_variable(name): str(port) for name, port in sorted(member.ports.items())},
    }
    if group.job.spec.array is not None:
        env["JOB_COMPLETION_INDEX"] = str(spec.index)
    tasks = _tasks(group)
    if len(tasks) <= LARGEST_VARIABLE:
        return TaskBootstrap(env={**env, "SHOAL_TASKS": tasks})
    env["SHOAL_TASKS_FILE"] = f"{RENDEZVOUS_FOLDER}/{TASKS_FILE}"
    return TaskBootstrap(env=env, files={TASKS_FILE: tasks})


def _variable(port: str) -> str:
    return f"SHOAL_PORT_{port.upper().replace('-', '_')}"


def _tasks(group: Group) -> str:
    described = {
        role: [_described(member) for member in members] for role, members in group.by_role.items()
    }
    for other in group.others:
        described.setdefault(other.role, []).append(_described(other))
    return codec.encode(described).decode()


def _described(member: Endpoint) -> dict[str, Any]:
    return {
        "index": member.index, "host": member.host, "ports": member.ports, "node": member.node,
    }  # fmt: skip
