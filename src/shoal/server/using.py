"""Who uses what: nodes against their capacity, tasks by processor and memory."""

from __future__ import annotations

from shoal.client.reports import NodeUsage, TaskReport, UsageReport
from shoal.cluster.base import Cluster, NodeState, Task
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.server.tasks import reports_of

__all__ = ["usage_report"]


def usage_report(cluster: Cluster, namespace: str, now: float) -> UsageReport:
    """Nodes always in full; tasks only of the namespace, where one is named."""
    listing = cluster.list()
    reports = reports_of(cluster, listing.tasks)
    specs = {(t.spec.namespace, t.spec.name): t for t in listing.tasks}
    nodes = tuple(
        _node(node, [r for r in reports if r.node == node.name], specs) for node in cluster.nodes()
    )
    mine = tuple(r for r in reports if not namespace or r.namespace == namespace)
    return UsageReport(at=now, nodes=nodes, tasks=mine, silent_nodes=listing.unreachable_nodes)


def _node(node: NodeState, reports: list[TaskReport], tasks: dict[tuple[str, str], Task]) -> NodeUsage:
    there = [r for r in reports if r.phase != "Ended"]
    specs = [tasks[r.namespace, r.name].spec for r in there]
    return NodeUsage(
        name=node.name,
        ready=node.ready,
        capacity=node.capacity,
        requested_cpu=CpuMillis(sum(spec.cpu for spec in specs)),
        requested_memory=Bytes(sum(spec.memory or 0 for spec in specs)),
        held_gpus=sum(len(spec.placement.devices) for spec in specs),
        tasks=len(there),
        cpu_seconds=sum(r.cpu_seconds for r in there),
        memory_bytes=sum(r.memory_bytes for r in there),
    )
