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

from collections.abc import Sequence
from typing import Any

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.steps import Deny
from shoal.schedule.placing.shortfall import shortfall
from shoal.schedule.shares.ledger import CLUSTER, Refusal

__all__ = ["Reason", "denied", "forbidden", "holding", "never"]

Reason = tuple[str, dict[str, Any]]
"""A code, and its numbers."""

_SLACK = 1e-9


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


def forbidden(desk: Desk, asked: Asked, amounts: tuple[float, ...]) -> list[Reason]:
    """What others cannot give way for."""
    job, queue = asked.job, desk.queue(asked.job)
    found: list[Reason] = []
    for node in desk.columns.tree.paths[queue]:
        for budget in desk.cluster.queues[node].budgets:
            if budget.spent >= budget.hours:
                evidence = {"budget": budget.name, "hours": budget.hours, "spent": budget.spent}
                found.append(("BudgetExhausted", evidence))
    own, use = desk.later.ledger.nominal[queue], desk.later.ledger.use[queue]
    if not job.preemptible and any(own):
        for at, name in enumerate(desk.columns.names[:-1]):
            if amounts[at] > 0 and use[at] + amounts[at] > own[at] + _SLACK:
                evidence = {"resource": name, "nominal": own[at], "used": use[at], "asked": amounts[at]}
                found.append(("NotPreemptible", evidence))
    return found


def holding(desk: Desk, asked: Asked, amounts: tuple[float, ...]) -> list[Reason]:
    """All that holds it back now, in the order above; dates apart."""
    queue = desk.queue(asked.job)
    found = forbidden(desk, asked, amounts)
    capped = desk.later.users.refusal(queue, asked.job.user, amounts)
    refused = [capped] if capped is not None else []
    # that the cluster is full is for the nodes to say, which know where
    refused += [each for each in desk.later.ledger.refusals(queue, amounts) if each.rule != "Capacity"]
    found += [(each.rule, _numbers(desk, each)) for each in refused]
    for name, ask in asked.job.shared.items():
        left = desk.later.shared.get(name, 0)
        if ask > left:
            found.append(("SharedLacking", {"shared": name, "asked": ask, "left": left}))
    short = desk.shortage(asked)
    return [*found, short] if short is not None else found


def denied(asked: Asked, found: Sequence[Reason]) -> Deny:
    """The first is the reason; the others hold as well."""
    code, evidence = found[0]
    also = [{"code": each, **numbers} for each, numbers in found[1:]]
    return Deny(job=asked.job.name, code=code, evidence={**evidence, "also": also} if also else evidence)


def _numbers(desk: Desk, refused: Refusal) -> dict[str, Any]:
    return {
        "queue": "" if refused.queue == CLUSTER else desk.cluster.queues[refused.queue].name,
        "resource": desk.columns.names[refused.resource] if refused.resource >= 0 else "",
        "bound": refused.bound,
        "used": refused.used,
        "asked": refused.asked,
    }
