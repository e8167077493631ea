"""What a job needs at least before it can start, whatever of it is elastic.

A lower bound: where tasks differ and some of them may stay out, the smallest are counted, resource by
resource.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.objects.elastic import coordinator_of, own_roles
from shoal.objects.job import JobSpec, Resources, Role
from shoal.objects.node import Capacity

__all__ = ["fitting", "least_demand", "least_tasks", "share_of"]
_ENDLESS = 1_000_000
"""More tasks than any job has."""


def least_tasks(spec: JobSpec) -> dict[str, int]:
    """Role to the number of its tasks without which nothing starts."""
    if spec.array is not None:
        return {spec.roles[0].name: 1}
    own = own_roles(spec)
    counts = {role.name: _least(role, spec.gang.min is not None) for role in own}
    coordinator = coordinator_of(spec)
    return counts if coordinator is None else {coordinator.name: 1, **counts}


def least_demand(spec: JobSpec) -> dict[str, float]:
    """Resource (`cpu`, `memory`, `gpu`) to what all tasks that must start together ask for."""
    counts = least_tasks(spec)
    own = {role.name for role in own_roles(spec)}
    more = max(0, (spec.gang.min or 0) - sum(n for name, n in counts.items() if name in own))
    return {
        resource: sum(share_of(role.resources, resource) * counts[role.name] for role in spec.roles)
        + _cheapest(spec, resource, counts, more)
        for resource in ("cpu", "memory", "gpu")
    }


def share_of(resources: Resources, resource: str) -> float:
    """What one task asks for of a resource."""
    if resource == "cpu":
        return float(resources.cpu)
    if resource == "memory":
        return float(resources.memory or 0)
    return float(resources.gpu) if resources.gpu_share is None else resources.gpu_share


def fitting(resources: Resources, nodes: Iterable[Capacity], enough: int = _ENDLESS) -> int:
    """How many tasks that ask for so much the nodes hold, if nothing else runs; a task that asks for
    nothing fits without end. Nobody counts further than to `enough`."""
    found = 0
    for node in nodes:
        if found >= enough:
            break
        found += _fitting(resources, node)
    return found


def _fitting(resources: Resources, node: Capacity) -> int:
    most = _ENDLESS
    if resources.cpu:
        most = min(most, int(node.cpu) // int(resources.cpu))
    if resources.memory:
        most = min(most, int(node.memory) // int(resources.memory))
    if resources.gpu:
        most = min(most, len(node.gpus) // resources.gpu)
    if resources.gpu_share is not None:
        most = min(most, len(node.gpus) * (1000 // max(1, round(resources.gpu_share * 1000))))
    return most


def _least(role: Role, gang: bool) -> int:
    if role.min_replicas is not None:
        return min(role.replicas, role.min_replicas)
    return 0 if gang else role.replicas


def _cheapest(spec: JobSpec, resource: str, counts: dict[str, int], more: int) -> float:
    """So many further tasks, those that ask for the least of the resource."""
    total = 0.0
    for role in sorted(own_roles(spec), key=lambda role: share_of(role.resources, resource)):
        taken = min(more, role.replicas - counts.get(role.name, 0))
        total, more = total + taken * share_of(role.resources, resource), more - taken
    return total
