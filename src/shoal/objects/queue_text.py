"""Queues for people: the tree as a table, and one queue in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.objects.columns import age
from shoal.objects.kind import Description, Section
from shoal.objects.queue import Queue, QueueSummary, children_of, summaries
from shoal.objects.text import cores, memory, plural

_AMOUNT_TITLES = ["RESOURCE", "USED", "GUARANTEED", "OWN", "BORROWED", "BORROWS", "LENDS", "QUOTA"]
_BUDGET_TITLES = ["BUDGET", "RESOURCE", "HOURS", "SPENT", "LEFT"]

_RESOURCES = ("cpu", "memory", "gpu")
_TITLES = ["NAME", "PENDING", "RUNNING", "CPU", "MEMORY", "GPU", "OWN", "BORROWED", "WEIGHT", "AGE"]
_WIDE = ["GUARANTEED", "OLDEST", "NAMESPACES"]


def describe(queue: Queue, queues: Sequence[Queue], now: float) -> Description:
    """See `Kind.describe`."""
    name = queue.metadata.name
    every = summaries(queues)
    below = [q for q in queues if name in every[q.metadata.name].path[:-1]]
    table = queue_table(below, queues, now, wide=False)
    return Description(
        lines=_queue_lines(queue, queues, now),
        sections=[
            Section("Amounts", _AMOUNT_TITLES, _amount_rows(queue, queues)),
            Section("Budgets", _BUDGET_TITLES, _budget_rows(queue)),
            Section("Queues below", table.titles, table.rows),
        ],
        facts={"summary": every[name], "below": children_of(name, queues)},
    )


def queue_table(shown: Sequence[Queue], queues: Sequence[Queue], now: float, wide: bool) -> Section:
    """A row for each of `shown`, as a tree where all queues above one are shown too. Numbers are of a
    queue with all below it, so `queues` are all there are."""
    names = {queue.metadata.name: queue for queue in shown}
    rows: list[list[str]] = []
    for name, summary in summaries(queues).items():
        if name not in names:
            continue
        whole = all(above in names for above in summary.path)
        row = _row(names[name], summary, "  " * summary.depth if whole else "", now)
        rows.append([*row, *_wide(names[name], summary, now)] if wide else row)
    return Section("", [*_TITLES, *_WIDE] if wide else _TITLES, rows)


def _queue_lines(queue: Queue, queues: Sequence[Queue], now: float) -> list[tuple[str, str]]:
    """What `describe` says before its tables."""
    spec, status = queue.spec, queue.status
    summary = summaries(queues)[queue.metadata.name]
    siblings = [q for q in queues if q.spec.parent == spec.parent]
    lines = [("path", " > ".join(summary.path))] if summary.depth else []
    most = "" if spec.quota.jobs is None else f", {plural(spec.quota.jobs, 'job')} at most"
    oldest = f" (the oldest for {age(status.oldest_pending, now)})" if status.oldest_pending else ""
    lines.append(("jobs", f"{summary.running} running, {summary.pending} pending{oldest}{most}"))
    weight = f"{spec.weight:g}"
    if len(siblings) > 1:
        weight += f" of {sum(q.spec.weight for q in siblings):g}, with its siblings"
    lines.append(("weight", weight))
    if spec.priority:
        lines.append(("priority", f"{spec.priority} among its siblings"))
    if spec.fenced:
        lines.append(("fenced", "jobs in it take nothing back from outside"))
    if spec.min_runtime is not None:
        lines.append(("min runtime", f"{spec.min_runtime.text()} before others may take from a job"))
    if limit := _listed({r: getattr(spec.user_limit, r) for r in _RESOURCES}, spec.user_limit.jobs):
        lines.append(("each user", f"{limit} at most"))
    lines.append(("namespaces", ", ".join(spec.namespaces) or "all"))
    highest = ", ".join(f"{name} {value}" for name, value in spec.highest_priority.items())
    return [*lines, ("highest priority", highest)] if highest else lines


def _amount_rows(queue: Queue, queues: Sequence[Queue]) -> list[list[str]]:
    """A row for each resource that is used, or of which anything is said."""
    spec, summary = queue.spec, summaries(queues)[queue.metadata.name]
    rows: list[list[str]] = []
    for resource in _RESOURCES:
        stated = [getattr(part, resource) for part in (spec.borrowing, spec.lending, spec.quota)]
        numbers = (summary.used, summary.guaranteed, summary.own, summary.borrowed)
        shown = [each[resource] for each in numbers]
        if any(shown) or any(bound is not None for bound in stated):
            row = [_amount(resource, value) for value in (*shown, *stated)]
            rows.append([resource, *row])
    return rows


def _budget_rows(queue: Queue) -> list[list[str]]:
    """A row for each budget, in its unit: core hours, GiB hours, GPU hours, node hours."""
    rows: list[list[str]] = []
    for budget in queue.spec.budgets:
        spent = queue.status.spent.get(budget.name, 0.0)
        left = max(0.0, budget.hours - spent)
        rows.append(
            [budget.name, budget.resource, *(f"{h:.10g}" for h in _two(budget.hours, spent, left))]
        )
    return rows


def _row(queue: Queue, summary: QueueSummary, indent: str, now: float) -> list[str]:
    quota = queue.spec.quota
    running = str(summary.running) if quota.jobs is None else f"{summary.running}/{quota.jobs}"
    return [
        f"{indent}{queue.metadata.name}",
        str(summary.pending),
        running,
        *(_used(resource, summary, getattr(quota, resource)) for resource in _RESOURCES),
        _listed(summary.own) or "-",
        _listed(summary.borrowed) or "-",
        f"{queue.spec.weight:g}",
        age(queue.metadata.created, now),
    ]


def _wide(queue: Queue, summary: QueueSummary, now: float) -> list[str]:
    return [
        _listed(summary.guaranteed) or "-",
        age(queue.status.oldest_pending, now),
        ",".join(queue.spec.namespaces) or "*",
    ]


def _used(resource: str, summary: QueueSummary, quota: float | None) -> str:
    used = _amount(resource, summary.used[resource])
    return used if quota is None else f"{used}/{_amount(resource, quota)}"


def _listed(numbers: dict[str, Any], jobs: int | None = None) -> str:
    """`cpu 4, gpu 1.5`; nothing of what is absent, or 0 where nothing else can be meant."""
    parts = [f"{r} {_amount(r, value)}" for r, value in numbers.items() if value]
    return ", ".join(parts if jobs is None else [*parts, plural(jobs, "job")])


def _amount(resource: str, value: float | None) -> str:
    if value is None:
        return "-"
    if resource == "cpu":
        return cores(round(value))
    return memory(round(value)) if resource == "memory" else f"{value:.10g}"


def _two(*hours: float) -> list[float]:
    return [round(each, 2) for each in hours]
