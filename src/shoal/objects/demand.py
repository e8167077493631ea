"""What a job needs at least before it can start, and what is allowed of jobs and queues but surely a
mistake: larger than the cluster, larger than the quota. More nodes may be added, so such an object is
kept and waits; its author gets a warning.

The demand is a lower bound: where tasks differ and some of them may stay out, the smallest are counted,
resource by resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shoal.objects.columns import rounded_bytes
from shoal.objects.elastic import coordinator_of, own_roles
from shoal.objects.job import Job, JobSpec, Resources, Role
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import RESOURCES, Queue, Quota, children_of, own_of, parents_of, path_of

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
    nothing fits without end. Counting ends at `enough`."""
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


def about_queue(queue: Queue, others: Iterable[Queue], nodes: Sequence[Capacity]) -> list[str]:
    """Warnings about a queue that stands among the others, one of which it may replace. Nothing is
    larger than a cluster of which no node is known."""
    there = {other.metadata.name: other for other in others} | {queue.metadata.name: queue}
    return [*_beyond_cluster(queue, there, nodes), *_beyond_parent(queue, there)]


def about_job(job: Job, queues: Iterable[Queue], nodes: Sequence[Capacity]) -> list[str]:
    """Warnings about a job: it waits, and nothing that is there now can end that."""
    needs = least_demand(job.spec)
    found = [] if not nodes else _beyond_nodes(job, needs, _total(nodes), nodes)
    there = {queue.metadata.name: queue for queue in queues}
    for name in path_of(job.spec.queue, parents_of(there.values())):
        if name not in there:
            break
        spec = there[name].spec
        for quota, bound in (
            (spec.quota, f"queue {name} may use {{}} at most"),
            (spec.user_limit, f"a user may have {{}} at most in queue {name}"),
        ):
            found += [f"job {job.metadata.name} {asks}" for asks in _beyond_quota(needs, quota, bound)]
    return found


def _beyond_cluster(queue: Queue, there: dict[str, Queue], nodes: Sequence[Capacity]) -> Iterable[str]:
    name, spec, total = queue.metadata.name, queue.spec, _total(nodes)
    if not nodes:
        return
    parents = parents_of(there.values())
    own = own_of(there.values(), "nominal")
    top = [own[each] for each, parent in parents.items() if not parent]
    for resource in RESOURCES:
        has = total[resource]
        quota, nominal = getattr(spec.quota, resource), getattr(spec.nominal, resource) or 0
        if quota is not None and quota > has:
            yield (
                f"queue {name} may use {_words(resource, quota)}, and all nodes together have "
                f"{_count(resource, has)}"
            )
        together = sum(getattr(each, resource) or 0 for each in top)
        if nominal and together > has:
            yield (
                f"queues have {_words(resource, together)} of their own together, and all nodes have "
                f"{_count(resource, has)}: where all is wanted, each gets the same part of its own"
            )


def _beyond_parent(queue: Queue, there: dict[str, Queue]) -> Iterable[str]:
    """Numbers that count as more than what is written."""
    name = queue.metadata.name
    for field, words in (("nominal", "of its own"), ("guaranteed", "guaranteed")):
        own = own_of(there.values(), field)
        for above in path_of(name, parents_of(there.values())):
            below = children_of(above, there.values())
            for resource in RESOURCES:
                stated = getattr(getattr(there[above].spec, field), resource)
                total: Any = getattr(own[above], resource)
                if stated is not None and below and (total or 0) > stated:
                    yield (
                        f"queue {above} has {_words(resource, stated)} {words}, and the queues below it "
                        f"{_count(resource, total)} together: it counts as {_count(resource, total)}"
                    )


def _beyond_nodes(
    job: Job, needs: dict[str, float], total: dict[str, float], nodes: Sequence[Capacity]
) -> list[str]:
    name = job.metadata.name
    found = [
        f"job {name} waits for a larger node: a {role.name} {_too_much(role.resources, nodes)}"
        for role in job.spec.roles
        if not fitting(role.resources, nodes, 1)
    ]
    if found:
        return found
    found = [
        f"job {name} asks for {_words(resource, needs[resource])} at least, and all nodes together have "
        f"{_count(resource, total[resource])}: it waits until there are more"
        for resource in RESOURCES
        if needs[resource] > total[resource]
    ]
    if found:
        return found
    counts = least_tasks(job.spec)
    for role in job.spec.roles:
        places = fitting(role.resources, nodes, counts[role.name])
        if places < counts[role.name]:
            found.append(
                f"job {name} starts with {counts[role.name]} tasks of role {role.name} at least, and "
                f"all nodes together hold {places}: it waits until there are more"
            )
    return found


def _too_much(asked: Resources, nodes: Sequence[Capacity]) -> str:
    """What a task asks for that no node has."""
    cpu, memory = max(node.cpu for node in nodes), max(node.memory for node in nodes)
    gpus = max(len(node.gpus) for node in nodes)
    if asked.cpu > cpu:
        return f"asks for {asked.cpu.text()} cpu, and the largest node has {cpu.text()}"
    if asked.memory is not None and asked.memory > memory:
        return f"asks for {asked.memory.text()} memory, and the largest node has {rounded_bytes(memory)}"
    if asked.gpu_share is not None and not gpus:
        return "asks for a part of a GPU, and no node has one"
    if asked.gpu > gpus:
        return f"asks for {asked.gpu} GPUs, and the largest node has {gpus or 'none'}"
    return "asks for more than any one node has, though other nodes have enough of each"


def _beyond_quota(needs: dict[str, float], quota: Quota, bound: str) -> list[str]:
    found: list[str] = []
    for resource in RESOURCES:
        most = getattr(quota, resource)
        if most is not None and needs[resource] > most:
            needed = _words(resource, needs[resource])
            found.append(f"asks for {needed} at least, and {bound.format(_count(resource, most))}")
    if quota.jobs == 0:
        found.append(f"waits: {bound.format('no job')}")
    return found


def _total(nodes: Sequence[Capacity]) -> dict[str, float]:
    return {
        "cpu": sum(node.cpu for node in nodes),
        "memory": sum(node.memory for node in nodes),
        "gpu": sum(len(node.gpus) for node in nodes),
    }


def _words(resource: str, amount: float) -> str:
    if resource == "gpu":
        return f"{amount:g} GPU{'' if amount == 1 else 's'}"
    return f"{_count(resource, amount)} {resource}"


def _count(resource: str, amount: float) -> str:
    if resource == "gpu":
        return f"{amount:g}" if amount else "none"
    if resource == "cpu":
        return CpuMillis(amount).text()
    return rounded_bytes(Bytes(amount))
