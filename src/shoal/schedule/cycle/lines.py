"""Who is served next.

Of each queue: the higher priority, then who holds something and has lost its minimum, then who came
first. Of the queues: first who asks for no more than its queue's own; of what is borrowed the queue of
higher priority; then the job of higher priority; then the queue that is least ahead of its own (dominant
share beyond nominal over weight, from the top of the tree downwards); then who came first. What is
served counts for those after it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.shares.laws import beyond_own
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.standing import standing

__all__ = ["in_order"]

_Key = tuple[bool, tuple[int, ...], int, tuple[float, ...], bool, float, str]


def in_order(
    waiting: Sequence[tuple[Asked, tuple[float, ...]]], columns: Columns, ledger: Ledger
) -> list[Asked]:
    """Those who wait, each with what it asks for by column."""
    trial = ledger.copy()
    lines: dict[int, list[tuple[Asked, tuple[float, ...]]]] = {}
    for each in waiting:
        lines.setdefault(columns.queue_at[each[0].job.queue], []).append(each)
    for line in lines.values():
        line.sort(key=lambda each: _own_order(each[0]), reverse=True)
    heap = [(_key(trial, queue, *line[-1]), queue) for queue, line in lines.items()]
    heapq.heapify(heap)
    found: list[Asked] = []
    while heap:
        key, queue = heapq.heappop(heap)
        line = lines[queue]
        # what was served since can only have put the queue further back
        current = _key(trial, queue, *line[-1])
        if current > key:
            heapq.heappush(heap, (current, queue))
            continue
        asked, amounts = line.pop()
        found.append(asked)
        if trial.allows(queue, amounts):
            trial.charge(queue, amounts)
        if line:
            heapq.heappush(heap, (_key(trial, queue, *line[-1]), queue))
    return found


def _own_order(asked: Asked) -> tuple[int, bool, float, str]:
    job = asked.job
    return (-job.priority, not job.present, job.waiting_since, job.name)


def _key(ledger: Ledger, queue: int, asked: Asked, amounts: Sequence[float]) -> _Key:
    job = asked.job
    beyond = beyond_own(ledger, queue, amounts) >= 0
    path = list(reversed(ledger.rules.tree.paths[queue]))
    first = tuple(-ledger.priority[node] for node in path) if beyond else ()
    # a gang is ahead by all of its ask at once: who would be evicted for it is not started before it
    more = amounts if beyond else None
    ahead = tuple(standing(ledger, node, more) for node in path)
    return (beyond, first, -job.priority, ahead, not job.present, job.waiting_since, job.name)
