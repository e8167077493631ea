"""TensorFlow: `TF_CONFIG`, as a TFJob's tasks get it.

Roles are named as TensorFlow names them: chief or master, worker, ps, evaluator. A job with workers
that may come and go one by one (an elastic role, not restarted as a gang) gets the sparse form: no task
needs to know the workers, each knows itself and the parameter servers.
"""

from __future__ import annotations

from typing import Any

from shoal.objects import codec
from shoal.objects.task import Endpoint, TaskBootstrap
from shoal.rendezvous.group import Group, address

__all__ = ["render"]


def render(group: Group, member: Endpoint) -> TaskBootstrap:
    """TensorFlow's contract for one task: nothing for a job that has one replica in all."""
    if sum(role.replicas for role in group.job.spec.roles) == 1:
        return TaskBootstrap()
    config = _sparse(group, member) if _workers_come_and_go(group) else _full(group, member)
    return TaskBootstrap(env={"TF_CONFIG": codec.encode(config).decode()})


def _full(group: Group, member: Endpoint) -> dict[str, Any]:
    cluster = {role: [address(each) for each in members] for role, members in group.by_role.items()}
    return {
        "cluster": dict(sorted(cluster.items())),
        "task": {"type": member.role, "index": group.by_role[member.role].index(member)},
        "environment": "cloud",
    }


def _sparse(group: Group, member: Endpoint) -> dict[str, Any]:
    servers = [address(each) for each in group.by_role.get("ps", ())]
    worker: dict[str, str] = {}
    if member.role == "worker":
        worker = {str(member.index): address(member)}
    elif member.role == "ps":
        servers = [address(member)]
    return {
        "cluster": {"worker": worker, "ps": servers},
        "task": {"type": member.role, "index": member.index},
    }


def _workers_come_and_go(group: Group) -> bool:
    spec = group.job.spec
    elastic = any(role.name == "worker" and role.min_replicas is not None for role in spec.roles)
    return elastic and spec.restart.scope != "Gang"
