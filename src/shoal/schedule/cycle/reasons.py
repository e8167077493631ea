"""Why a job does not start: the first reason in this order, and the numbers of it.

| code | means |
| --- | --- |
| NamespaceNotAllowed | its queue is not for its namespace |
| PriorityTooHigh | its namespace may not have such a priority in its queue |
| NoNodes | the cluster has none |
| NoNodeSuits | no node has the labels, or lets it stand there |
| TooLarge | the nodes that suit would not hold its minimum if nothing ran |
| TooFarApart | they would, but not as close together as it requires |
| TooFewShared | the cluster has not so many licences |
| OverUserCap | its minimum is more than its user may ever have in the queue |
| OverLimit | its minimum is more than the queue may ever have |
| BudgetExhausted | hours of a budget that pays for what it asks for are used up |
| NotPreemptible | it cannot be preempted, and would be beyond what its queue has of its own |
| UserCap, Limit, Borrowing, Kept, Capacity | a queue on its path, or the cluster, has no more for it |
| SharedLacking | licences are in use |
| Stopping | its former tasks are not gone |
| Dated, Aside, Behind, BeyondDepth | see `dates` |
| WaitingForNode | nodes that would hold it do not answer, or take nothing for now |
| TopologyBusy | there is room, but not as close together as it requires |
| Fragmented | there is as much of everything as it asks for, and not on the same nodes |
| NoRoom | what it asks for is in use |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Role
from shoal.schedule.cycle.steps import Deny
from shoal.schedule.shares.budgets import Budget, charged, exhausted_at
from shoal.schedule.shares.laws import beyond_own
from shoal.schedule.shares.ledger import CLUSTER, Refusal
from shoal.schedule.taints import tolerates

__all__ = ["Held", "Reason", "denied", "forbidden", "holding", "lack_of_room", "never", "no_room"]

Reason = tuple[str, dict[str, Any]]
"""A code, and its numbers."""

_EVER = {"UserCap": "OverUserCap", "Limit": "OverLimit", "Borrowing": "OverLimit", "Kept": "OverLimit"}
"""What a rule means where nothing runs."""
_UNFITTING = {"NoNodes", "NoNodeSuits", "TooLarge", "TooFarApart"}
_MOST_NAMES = 5
NODE = "node"
"""Of budgets: hours on nodes."""


def never(desk: Desk, asked: Asked) -> list[Reason]:
    """What no waiting helps against: found out once for each row."""
    if asked.never is None:
        asked.never = desk.fitting.never(asked, lambda: _never(desk, asked))
    return asked.never


def _never(desk: Desk, asked: Asked) -> list[Reason]:
    job = asked.job
    found: list[Reason] = []
    queue = desk.cluster.queues[desk.queue(job)]
    allowed = queue.namespaces
    if allowed and job.namespace not in allowed:
        evidence = {"queue": queue.name, "namespace": job.namespace, "allowed": sorted(allowed)}
        found.append(("NamespaceNotAllowed", evidence))
    highest = queue.highest.get(job.namespace, queue.highest.get("*"))
    if highest is not None and job.priority > highest:
        evidence = {"queue": queue.name, "priority": job.priority, "highest": highest}
        found.append(("PriorityTooHigh", evidence))
    if not desk.fitting.ever(asked):
        found.append(_too_large(desk, asked))
    for name, ask in job.shared.items():
        total = desk.cluster.shared.get(name, 0)
        if ask > total:
            found.append(("TooFewShared", {"shared": name, "asked": ask, "total": total}))
    over = desk.fitting.refused_ever(asked)
    return [*found, *((_EVER[each.rule], _numbers(desk, each)) for each in over)]


def _too_large(desk: Desk, asked: Asked) -> Reason:
    job = asked.job
    if not desk.cluster.nodes:
        return "NoNodes", {}
    short = desk.fitting.shortfall_ever(asked)
    rows = list(zip(job.roles, short, strict=True))
    for role, each in rows:
        if each.nodes == 0 and each.wanted:
            return "NoNodeSuits", _unsuited(desk, role)
    bound = job.required or any(role.required for role in job.roles)
    apart = bool(bound) and all(each.empty >= each.wanted for each in short)
    evidence: dict[str, Any] = {
        "wanted": {role.name: each.wanted for role, each in rows},
        "empty": {role.name: each.empty for role, each in rows},
    }
    return "TooFarApart" if apart else "TooLarge", evidence


def _unsuited(desk: Desk, role: Role) -> dict[str, Any]:
    taints = {
        taint.key
        for node in desk.cluster.nodes
        for taint in node.taints
        if not tolerates(role.tolerations, taint)
    }
    return {
        "role": role.name,
        "nodes": len(desk.cluster.nodes),
        "selector": dict(sorted(role.selector.items())),
        "taints": sorted(taints)[:_MOST_NAMES],
    }


def forbidden(desk: Desk, asked: Asked, amounts: tuple[float, ...]) -> list[Reason]:
    """What others cannot give way for."""
    job, queue = asked.job, desk.queue(asked.job)
    found = _used_up(desk, queue, job.user, amounts) if desk.budgeted[queue] else []
    if job.preemptible:
        return found
    ledger = desk.later.ledger
    at = beyond_own(ledger, queue, amounts)
    if any(ledger.nominal[queue]) and at >= 0:
        evidence = {
            "resource": desk.columns.names[at],
            "nominal": ledger.nominal[queue][at],
            "used": ledger.use[queue][at],
            "asked": amounts[at],
        }
        found.append(("NotPreemptible", evidence))
    return found


def _used_up(desk: Desk, queue: int, user: str, amounts: tuple[float, ...]) -> list[Reason]:
    """Budgets that would pay for it, and have nothing left."""
    columns, queues = desk.columns, desk.cluster.queues
    stated = [(node, row) for node in columns.tree.paths[queue] for row in queues[node].budgets]
    rows = [(node, row) for node, row in stated if row.resource in columns.names]
    nodes = [row for _, row in stated if row.resource == NODE and row.spent >= row.hours]
    budgets = [
        Budget(row.name, node, columns.names.index(row.resource), row.hours, row.spent)
        for node, row in rows
    ]
    paying = charged(columns.tree, budgets, queue, user, amounts) if budgets else []
    over = [rows[place][1] for place in paying if exhausted_at(budgets[place]) == -math.inf]
    return [
        ("BudgetExhausted", {"budget": row.name, "hours": row.hours, "spent": row.spent})
        for row in [*over, *nodes]  # whatever it asks for, it is on a node
    ]


def holding(
    desk: Desk, asked: Asked, amounts: tuple[float, ...], ever: Sequence[Reason] = ()
) -> list[Reason]:
    """All that holds it back now, in the order above; dates apart. `ever`: what `never` has found; what
    follows from that is not named again."""
    queue = desk.queue(asked.job)
    found = list(ever)
    codes = {code for code, _ in found}
    found += forbidden(desk, asked, amounts)
    over = {(code, each["queue"], each["resource"]) for code, each in found if code in _EVER.values()}
    refused = [*desk.later.users.refusals(queue, asked.job.user, amounts)]
    # that the cluster is full is for the nodes to say, which know where
    refused += [each for each in desk.later.ledger.refusals(queue, amounts) if each.rule != "Capacity"]
    rules = [(each.rule, _numbers(desk, each)) for each in refused]
    found += [
        (code, each)
        for code, each in rules
        if (_EVER[code], each["queue"], each["resource"]) not in over
    ]
    for name, ask in asked.job.shared.items() if not asked.present else ():
        left = desk.later.shared.get(name, 0)
        if left < ask <= desk.cluster.shared.get(name, 0):
            found.append(("SharedLacking", {"shared": name, "asked": ask, "left": left}))
    if codes.isdisjoint(_UNFITTING):
        found += lack_of_room(desk, asked)
    return found


def no_room(desk: Desk, asked: Asked, refused: Refusal | None) -> bool:
    """Whether nothing but a lack of room on nodes holds it back, where its queue and the cluster have
    `refused` it: all of its need are told the same then."""
    later = desk.later
    if refused is not None and (refused.rule != "Capacity" or later.ledger.keeps):
        return False
    return not later.users.capped and not asked.job.shared and not forbidden(desk, asked, asked.lacks)


def lack_of_room(desk: Desk, asked: Asked) -> list[Reason]:
    """Where there is none for it."""
    return [_with_holders(desk, each) for each in desk.fitting.shortage(asked)]


def _with_holders(desk: Desk, reason: Reason) -> Reason:
    """Who holds most of what there is too little of."""
    code, evidence = reason
    if not evidence.get("short"):
        return reason
    return code, {**evidence, "holders": desk.holders(evidence["short"][0], _MOST_NAMES)}


class Held:
    """All that holds jobs back that are alike, dates apart: put into words once for all of them."""

    def __init__(self, found: Sequence[Reason]) -> None:
        self._found = found
        self._all = [_besides(each) for each in found]
        self._code, self._evidence = _in_words(found[0], self._all[1:]) if found else ("Behind", {})

    def denied(self, asked: Asked, said: Sequence[Reason] = ()) -> Deny:
        """`said` comes first. Who is held back by nothing is behind others."""
        if not said:
            return Deny(job=asked.job.name, code=self._code, evidence=self._evidence)
        code, evidence = _in_words(said[0], [*map(_besides, said[1:]), *self._all])
        return Deny(job=asked.job.name, code=code, evidence=evidence)


def denied(asked: Asked, found: Sequence[Reason]) -> Deny:
    """The first is the reason; the others hold as well."""
    code, evidence = _in_words(found[0], [_besides(each) for each in found[1:]])
    return Deny(job=asked.job.name, code=code, evidence=evidence)


def _besides(reason: Reason) -> dict[str, Any]:
    return {"code": reason[0], **reason[1]}


def _in_words(reason: Reason, also: list[dict[str, Any]]) -> Reason:
    """What is said of it where these hold as well."""
    code, evidence = reason
    return code, {**evidence, "also": also} if also else evidence


def _numbers(desk: Desk, refused: Refusal) -> dict[str, Any]:
    return {
        "queue": "" if refused.queue == CLUSTER else desk.cluster.queues[refused.queue].name,
        "resource": desk.columns.names[refused.resource] if refused.resource >= 0 else "",
        "bound": refused.bound,
        "used": refused.used,
        "asked": refused.asked,
    }
