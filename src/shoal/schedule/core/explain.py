"""Why a job waits: the first reason of a fixed order, with its numbers, from a decision's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.schedule.core.placement import place
from shoal.schedule.core.queues import Refusal
from shoal.schedule.core.session import Session
from shoal.schedule.core.state import JobState
from shoal.schedule.cycle.rows import Role
from shoal.schedule.taints import tolerates

__all__ = ["Reason", "budget", "lack_of_room", "never", "numbers"]

Reason = tuple[str, dict[str, Any]]
Bools = npt.NDArray[np.bool_]
_EVER = {"UserCap": "OverUserCap", "Limit": "OverLimit", "Borrowing": "OverLimit", "Kept": "OverLimit"}
_MOST = 5


def never(session: Session, job: JobState) -> Reason | None:
    """What no waiting helps against, the same for all jobs of a kind; `also` is what holds as well."""
    found = list(_never(session, job))
    if not found:
        return None
    (code, evidence), *others = found
    also = [{"code": other, **numbers} for other, numbers in others]
    return code, {**evidence, "also": also} if also else evidence


def _never(session: Session, job: JobState) -> Iterator[Reason]:
    row, queues = job.row, session.queues
    queue = queues.rows[job.queue]
    if queue.namespaces and row.namespace not in queue.namespaces:
        allowed = sorted(queue.namespaces)
        yield (
            "NamespaceNotAllowed",
            {"queue": queue.name, "namespace": row.namespace, "allowed": allowed},
        )
    highest = queue.highest.get(row.namespace, queue.highest.get("*"))
    if highest is not None and row.priority > highest:
        evidence = {"queue": queue.name, "priority": row.priority, "highest": highest}
        yield "PriorityTooHigh", evidence
    if not session.nodes.rows:
        yield "NoNodes", {}
    else:
        yield from _too_large_here(session, job)
    for name, ask in row.shared.items():
        total = session.cluster_shared(name)
        if ask > total:
            yield "TooFewShared", {"shared": name, "asked": ask, "total": total}
    held, stays, users = queues.held, queues.stays, queues.users
    queues.held = queues.stays = np.zeros_like(held)
    queues.users = {}
    try:
        load = job.load(job.gang(), new=True)
        refusals = queues.refusals(job.queue, row.user, load, now=False)
        found = [(_EVER[refusal.code], numbers(session, refusal)) for refusal in refusals]
    finally:
        queues.held, queues.stays, queues.users = held, stays, users
    yield from found


def _too_large_here(session: Session, job: JobState) -> list[Reason]:
    """The same for all jobs of a shape and topology, as long as the nodes are the same."""
    row, known = job.row, session.base.too_large
    key = (job.shape.key, row.required, row.preferred, row.spread)
    if key not in known:
        known[key] = list(_too_large(session, job))
    return known[key]


def _too_large(session: Session, job: JobState) -> Iterator[Reason]:
    nodes, counts, empty = session.nodes, job.gang(), session.base.empty
    names = [role.name for role in job.row.roles]
    room: dict[str, int] = {}
    for at, role in enumerate(job.row.roles):
        if not counts[at]:
            continue
        suits = nodes.suits(role)
        if not suits.any():
            yield "NoNodeSuits", _unsuited(session, role)
            return
        fits = empty.counts(job.requests[at])
        room[role.name] = int(min(fits[suits].sum(), 1 << 30))
    free = len(names) == 1 and not (job.row.required or job.row.spread or job.row.roles[0].required)
    if free and room.get(names[0], 0) >= counts[0]:
        return
    opened = nodes.open
    nodes.open = np.ones_like(opened)
    kept, job.present = job.present, []
    mark = empty.mark()
    try:
        found = None
        for each in job.compositions():
            found = place(nodes, empty, job, each)
            empty.rollback(mark)
            if found is not None:
                break
    finally:
        nodes.open, job.present = opened, kept
    if found is None:
        wanted = {name: count for name, count in zip(names, counts, strict=True) if count}
        apart = all(room[name] >= count for name, count in wanted.items())
        bound = job.row.required or any(role.required for role in job.row.roles)
        yield "TooFarApart" if apart and bound else "TooLarge", {"wanted": wanted, "empty": room}


def _unsuited(session: Session, role: Role) -> dict[str, Any]:
    taints = {
        taint.key
        for node in session.nodes.rows
        for taint in node.taints
        if not tolerates(role.tolerations, taint)
    }
    return {
        "role": role.name,
        "nodes": len(session.nodes.rows),
        "selector": dict(sorted(role.selector.items())),
        "taints": sorted(taints)[:_MOST],
    }


def numbers(session: Session, refusal: Refusal) -> dict[str, Any]:
    """The evidence of a limit."""
    queues = session.queues
    found: dict[str, Any] = {
        "queue": queues.rows[refusal.queue].name if refusal.queue >= 0 else "",
        "resource": queues.resources[refusal.resource],
        "bound": refusal.bound,
        "used": refusal.used,
        "asked": refusal.asked,
    }
    if refusal.code == "Kept":
        column = refusal.resource
        found["guaranteed"] = {
            queues.rows[at].name: float(queues.guaranteed[at, column])
            for at in range(len(queues.rows))
            if queues.guaranteed[at, column] > queues.stays[at, column]
        }
    return found


def budget(session: Session, job: JobState) -> Reason | None:
    """A budget of its queues that is used up, where the job would spend of it."""
    load = job.load(job.gang(), new=True)
    for at in session.queues.paths[job.queue]:
        for each in session.queues.rows[at].budgets:
            if each.spent < each.hours:
                continue
            names = session.queues.resources
            uses = each.resource == "node" or (
                each.resource in names and load[names.index(each.resource)] > 0
            )
            if uses:
                return "BudgetExhausted", {"budget": each.name, "hours": each.hours, "spent": each.spent}
    return None


def lack_of_room(session: Session, job: JobState, counts: list[int]) -> Reason:
    """Too little is free, or not where it is needed."""
    nodes, later = session.nodes, session.later
    wanted = {role.name: count for role, count in zip(job.row.roles, counts, strict=True) if count}
    fitting_: dict[str, int] = {}
    short: set[str] = set()
    total, largest = 0, 0
    shut: list[int] = []
    suiting = np.zeros(len(nodes.rows), np.bool_)
    enough_in_all = True
    for at, role in enumerate(job.row.roles):
        if not counts[at]:
            continue
        suits = nodes.suits(role)
        suiting |= suits
        fits = np.where(suits, later.counts(job.requests[at]), 0)
        shut += [int(each) for each in np.flatnonzero((fits > 0) & ~nodes.open)]
        fits = np.where(nodes.open, fits, 0)
        fitting_[role.name] = int(min(fits.sum(), counts[at]))
        usable = suits & nodes.open
        request = job.requests[at]
        if fitting_[role.name] >= counts[at]:
            continue
        for column, ask in enumerate(request.amounts):
            if ask and later.amounts[usable, column].sum() < ask * counts[at]:
                short.add(nodes.resources[column])
                enough_in_all = False
        if request.gpus:
            whole = (later.slots[usable] >= 1000).sum(axis=1)
            total, largest = int(whole.sum()), int(whole.max(initial=0))
            if total < request.gpus * counts[at]:
                short.add("gpu")
                enough_in_all = False
        elif request.share and (later.slots[usable] // request.share).sum() < counts[at]:
            short.add("gpu")
    if shut and _would_fit(session, job, counts):
        silent = sorted({nodes.rows[at].name for at in shut if not nodes.rows[at].ready})
        cordoned = sorted({nodes.rows[at].name for at in shut if nodes.rows[at].ready})
        return "WaitingForNode", {"silent": silent[:_MOST], "cordoned": cordoned[:_MOST]}
    evidence: dict[str, Any] = {"wanted": wanted, "fitting": fitting_}
    if all(fitting_[name] >= count for name, count in wanted.items()):
        levels = sorted(
            {each for each in (job.row.required, *(r.required for r in job.row.roles)) if each}
        )
        if levels:
            return "TopologyBusy", {**evidence, "levels": levels}
        evidence["fitting"] = _together(session, job, counts)
        short |= _lacking(session, job, counts, suiting)
    if enough_in_all and not short:
        return "Fragmented", {**evidence, "free": total, "largest": largest, "onOneNode": _gpus(job)}
    return "NoRoom", {**evidence, "short": sorted(short), "holders": _holders(session, suiting)}


def _together(session: Session, job: JobState, counts: list[int]) -> dict[str, int]:
    """Tasks by role that fit beside each other, where each role alone would fit."""
    mark = session.later.mark()
    slots = place(session.nodes, session.later, job, counts, partial=True) or []
    session.later.rollback(mark)
    names = [role.name for role, count in zip(job.row.roles, counts, strict=True) if count]
    found = dict.fromkeys(names, 0)
    for slot in slots:
        found[job.row.roles[slot.role].name] += 1
    return found


def _lacking(session: Session, job: JobState, counts: list[int], suits: Bools) -> set[str]:
    """Resources of which all roles together need more than is free on nodes that suit."""
    nodes, later = session.nodes, session.later
    usable = suits & nodes.open
    pairs = list(zip(job.requests, counts, strict=True))
    found = {
        name
        for column, name in enumerate(nodes.resources)
        if later.amounts[usable, column].sum() < sum(each.amounts[column] * n for each, n in pairs)
    }
    gpus = sum(each.gpus * 1000 * n + each.share * n for each, n in pairs)
    return found | {"gpu"} if later.slots[usable].sum() < gpus else found


def _gpus(job: JobState) -> int:
    return max((request.gpus for request in job.requests), default=0)


def _would_fit(session: Session, job: JobState, counts: list[int]) -> bool:
    nodes = session.nodes
    opened = nodes.open
    nodes.open = np.ones_like(opened)
    mark = session.later.mark()
    try:
        return place(nodes, session.later, job, counts) is not None
    finally:
        session.later.rollback(mark)
        nodes.open = opened


def _holders(session: Session, suits: Bools) -> list[str]:
    """Jobs with most tasks (or GPUs) on nodes that suit, tasks of this decision included."""
    found: list[tuple[int, str]] = []
    for job in session.jobs.values():
        held = sum(
            len(task.gpus) or 1
            for task in job.row.tasks
            if task.node in session.nodes.index and suits[session.nodes.index[task.node]]
        )
        for slots in (session.started.get(job.name, ()), session.grown.get(job.name, ())):
            held += sum(len(slot.gpus) or 1 for slot in slots if suits[slot.node])
        if held:
            found.append((-held, job.name))
    return [name for _, name in sorted(found)[:_MOST]]
