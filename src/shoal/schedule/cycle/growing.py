"""What is left goes to jobs that may have more, class by class, one task at a time to who has least more
than its minimum. What they get beyond their minimum is the first to be taken back."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.placing.asks import Placement, Tasks
from shoal.schedule.placing.grow import grow

__all__ = ["grow_all"]


def grow_all(desk: Desk, order: Sequence[Asked]) -> None:
    """Those that hold something, and were not told to give back in this plan; who was served first in
    this plan comes first among equals."""
    rank = {asked.job.name: at for at, asked in enumerate(order)}
    heap: list[tuple[int, int, int, str, int]] = []
    for name, present in desk.present.items():
        asked = desk.asked[name]
        counts = asked.counts(present)
        if asked.job.suspended or desk.told_to_give(name) or name in desk.ending:
            continue
        for at, (count, low, high) in enumerate(zip(counts, asked.minimum, asked.room, strict=True)):
            if low <= count < high:
                heap.append((-asked.job.priority, count - low, rank.get(name, -1), name, at))
    heapq.heapify(heap)
    gained: dict[str, list[Placement]] = {}
    hopeless: set[tuple[object, ...]] = set()
    while heap:
        priority, more, place_in_order, name, role = heapq.heappop(heap)
        asked = desk.asked[name]
        alike = (asked.job.queue, asked.job.user, asked.shapes[role], asked.reach, asked.job.spread)
        bound = asked.reach.required is not None
        if alike in hopeless and not bound:
            continue
        placed = _one_more(desk, asked, role, gained.get(name, []))
        if placed is None:
            hopeless.add(alike)
            continue
        gained.setdefault(name, []).append(placed)
        count = asked.counts(desk.present[name])[role] + sum(len(each[role]) for each in gained[name])
        if count < asked.room[role]:
            heapq.heappush(heap, (priority, more + 1, place_in_order, name, role))
    for name, pieces in gained.items():
        asked = desk.asked[name]
        joined = tuple(
            Tasks.joined(shape, [piece[at] for piece in pieces]) for at, shape in enumerate(asked.shapes)
        )
        desk.grown(asked, joined)


def _one_more(desk: Desk, asked: Asked, role: int, gained: Sequence[Placement]) -> Placement | None:
    one = tuple(int(at == role) for at in range(len(asked.shapes)))
    amounts = asked.ask(one, new=False)
    for books in (desk.current, desk.later):
        if books.refusal(asked, amounts) is not None:
            return None
    there = asked.placement(desk.present[asked.job.name])
    if gained:
        there = tuple(
            Tasks.joined(shape, [there[at], *(piece[at] for piece in gained)])
            for at, shape in enumerate(asked.shapes)
        )
    gang = asked.gang(asked.minimum, asked.maximum)
    found = grow(desk.current.room, gang, there, one, one)
    if found is None:
        return None
    desk.later.occupy(found)
    for books in (desk.current, desk.later):
        books.charge(asked, amounts)
    return found
