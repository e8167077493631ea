"""Queues as the scheduler's rows.

Each edit of a queue is checked against the others, but two at the same moment may contradict each other
all the same, and a queue may go while others name it as theirs. The scheduler must go on then: what
hangs from nothing, or from itself, stands alone, and own amounts shrink to what the limits above allow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from shoal.control.rows import priority_of
from shoal.objects.kinds import QUEUE
from shoal.objects.queue import Amounts, Queue, Quota
from shoal.schedule.cycle.rows import Budget
from shoal.schedule.cycle.rows import Queue as Row

__all__ = ["queue_row", "queue_rows"]

_LOG = logging.getLogger("shoal.control")
Nominal = dict[str, dict[str, float]]
"""Queue to resource to amount."""


def queue_rows(queues: Iterable[Queue]) -> tuple[Row, ...]:
    """All of them, by name, free of contradictions."""
    rows = {row.name: row for row in map(_usable_row, sorted(queues, key=lambda q: q.metadata.name))}
    for name, row in rows.items():
        if row.parent and not _reaches_the_top(rows, name):
            rows[name] = msgspec.structs.replace(row, parent="")
    return tuple(_within_limits(rows))


def _usable_row(queue: Queue) -> Row:
    try:
        # of a queue that was written past admission: a weight of -1 makes every decision fail
        problem = next((found.message for found in QUEUE.check(queue)), "")
        row = Row(name=queue.metadata.name) if problem else queue_row(queue)
    except Exception as error:  # noqa: BLE001 - its jobs keep what they hold; the other queues go on
        _LOG.warning("queue %s counts without limits: %s", queue.metadata.name, error)
        return Row(name=queue.metadata.name)
    if problem:
        _LOG.warning("queue %s counts without limits: %s", queue.metadata.name, problem)
    return row


def queue_row(queue: Queue) -> Row:
    """One queue as it stands."""
    spec, status = queue.spec, queue.status
    return Row(
        name=queue.metadata.name,
        parent=spec.parent,
        nominal=_amounts(spec.nominal),
        guaranteed=_amounts(spec.guaranteed),
        limit=_amounts(spec.quota),
        borrowing=_amounts(spec.borrowing),
        lending=_amounts(spec.lending),
        weight=spec.weight,
        priority=spec.priority,
        fenced=spec.fenced,
        jobs=spec.quota.jobs,
        namespaces=spec.namespaces,
        highest={name: priority_of(value) for name, value in spec.highest_priority.items()},
        user_limit=_amounts(spec.user_limit),
        user_jobs=spec.user_limit.jobs,
        minimum_seconds=float(spec.min_runtime or 0.0),
        budgets=tuple(
            Budget(
                name=budget.name,
                resource=budget.resource,
                hours=budget.hours,
                spent=status.spent.get(budget.name, 0.0),
            )
            for budget in spec.budgets
        ),
    )


def _amounts(amounts: Amounts | Quota) -> dict[str, float]:
    named = {"cpu": amounts.cpu, "memory": amounts.memory, "gpu": amounts.gpu}
    return {name: float(amount) for name, amount in named.items() if amount is not None}


def _reaches_the_top(rows: Mapping[str, Row], name: str) -> bool:
    seen = {name}
    while parent := rows[name].parent:
        if parent not in rows or parent in seen:
            return False
        seen.add(parent)
        name = parent
    return True


def _within_limits(rows: dict[str, Row]) -> Iterator[Row]:
    below: dict[str, list[str]] = {name: [] for name in rows}
    for name, row in rows.items():
        if row.parent:
            below[row.parent].append(name)
    nominal = {name: dict(row.nominal) for name, row in rows.items()}
    for name, row in _from_the_top(rows):
        for resource, limit in row.limit.items():
            total = _total(name, resource, nominal, below)
            if total > limit:
                _scale(name, resource, limit / total, nominal, below)
    for name, row in rows.items():
        own = {resource: _total(name, resource, nominal, below) for resource in row.guaranteed}
        kept = {resource: min(amount, own[resource]) for resource, amount in row.guaranteed.items()}
        yield msgspec.structs.replace(row, nominal=nominal[name], guaranteed=kept)


def _from_the_top(rows: Mapping[str, Row]) -> list[tuple[str, Row]]:
    def depth(name: str) -> int:
        parent = rows[name].parent
        return 1 + depth(parent) if parent else 0

    return sorted(rows.items(), key=lambda item: (depth(item[0]), item[0]))


def _total(name: str, resource: str, nominal: Nominal, below: Mapping[str, list[str]]) -> float:
    """Its own, or what those below it have together where that is more."""
    children = sum(_total(child, resource, nominal, below) for child in below[name])
    return max(nominal[name].get(resource, 0.0), children)


def _scale(
    name: str, resource: str, factor: float, nominal: Nominal, below: Mapping[str, list[str]]
) -> None:
    if resource in nominal[name]:
        nominal[name][resource] *= factor
    for child in below[name]:
        _scale(child, resource, factor, nominal, below)
