"""Why a job does not start: the first reason in this order, and the numbers of it.

| code | means |
| --- | --- |
| NamespaceNotAllowed | its queue is not for its namespace |
| NoNodeSuits | no node has the labels, or lets it stand there |
| TooLarge | the nodes that suit would not hold its minimum if nothing ran |
| TooFarApart | they would, but not as close together as it requires |
| OverLimit | its minimum is more than its queue, or its user, may ever have |
| BudgetExhausted | hours of a budget are used up |
| NotPreemptible | it cannot be preempted, and would be beyond what its queue has of its own |
| UserCap, Limit, Borrowing, Kept, Capacity | a queue on its path, or the cluster, has no more for it |
| SharedLacking | licences are in use |
| Stopping | its former tasks are not gone |
| Dated, Aside, Behind, BeyondDepth | see `dates` |
| TopologyBusy | there is room, but not as close together as it requires |
| Fragmented | there is as much of everything as it asks for, and not on the same nodes |
| NoRoom | what it asks for is in use |
"""

from __future__ import annotations

from typing import Any

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.steps import Deny
from shoal.schedule.placing.shortfall import shortfall
from shoal.schedule.shares.ledger import CLUSTER, Refusal

__all__ = ["forbidden", "never", "quota"]


def never(desk: Desk, asked: Asked) -> Deny | None:
    """What no waiting helps against."""
    job = asked.job
    allowed = desk.cluster.queues[desk.queue(job)].namespaces
    if allowed and job.namespace not in allowed:
        return Deny(job=job.name, code="NamespaceNotAllowed", evidence={"allowed": sorted(allowed)})
    if desk.fits_empty(asked):
        refused = desk.refused_empty(asked)
        return (
            None
            if refused is None
            else Deny(job=job.name, code="OverLimit", evidence=_numbers(desk, refused))
        )
    empty = desk.empty_room()
    short = shortfall(empty, asked.gang(asked.minimum, asked.minimum))
    for role, each in zip(job.roles, short, strict=True):
        if each.nodes == 0 and each.wanted:
            return Deny(job=job.name, code="NoNodeSuits", evidence={"role": role.name})
    evidence: dict[str, Any] = {
        "wanted": {role.name: each.wanted for role, each in zip(job.roles, short, strict=True)},
        "empty": {role.name: each.empty for role, each in zip(job.roles, short, strict=True)},
    }
    apart = all(each.empty >= each.wanted for each in short) and bool(
        job.required or any(role.required for role in job.roles)
    )
    return Deny(job=job.name, code="TooFarApart" if apart else "TooLarge", evidence=evidence)


def forbidden(desk: Desk, asked: Asked, amounts: tuple[float, ...]) -> Deny | None:
    """What others cannot give way for."""
    job = asked.job
    for node in desk.columns.tree.paths[desk.queue(job)]:
        for budget in desk.cluster.queues[node].budgets:
            if budget.spent >= budget.hours:
                evidence = {"budget": budget.name, "hours": budget.hours, "spent": budget.spent}
                return Deny(job=job.name, code="BudgetExhausted", evidence=evidence)
    if not job.preemptible:
        queue = desk.queue(job)
        own, use = desk.later.ledger.nominal[queue], desk.later.ledger.use[queue]
        for at, name in enumerate(desk.columns.names[:-1]):
            if any(own) and amounts[at] > 0 and use[at] + amounts[at] > own[at] + 1e-9:
                evidence = {"resource": name, "nominal": own[at], "used": use[at], "asked": amounts[at]}
                return Deny(job=job.name, code="NotPreemptible", evidence=evidence)
    return None


def quota(desk: Desk, asked: Asked, refused: Refusal) -> Deny:
    """Which rule of which queue."""
    return Deny(job=asked.job.name, code=refused.rule, evidence=_numbers(desk, refused))


def capacity(desk: Desk, asked: Asked) -> Deny:
    """What of the nodes, or of what the cluster shares out, is in use."""
    job = asked.job
    lacking = desk.later.lacks(asked)
    if lacking is not None:
        evidence: dict[str, Any] = {
            "shared": lacking,
            "asked": job.shared[lacking],
            "left": desk.later.shared.get(lacking, 0),
        }
        return Deny(job=job.name, code="SharedLacking", evidence=evidence)
    code, evidence = desk.shortage(asked)
    return Deny(job=job.name, code=code, evidence=evidence)


def _numbers(desk: Desk, refused: Refusal) -> dict[str, Any]:
    return {
        "queue": "" if refused.queue == CLUSTER else desk.cluster.queues[refused.queue].name,
        "resource": desk.columns.names[refused.resource] if refused.resource >= 0 else "",
        "bound": refused.bound,
        "used": refused.used,
        "asked": refused.asked,
    }
