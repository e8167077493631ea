"""Who has more than its target gives to who waits, or has less than its own: task by task.

Of the same queue, of no higher priority, never below a minimum, and only as much as the beneficiary then
has a place for. It is kept that place in the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.sizes.outlook import elastic_role
from shoal.schedule.placing.asks import Placement
from shoal.schedule.placing.grow import grow
from shoal.schedule.placing.place import place

__all__ = ["RESIZED", "even_out", "from_beyond"]

RESIZED = "Resized"
"""Code of a shrink to a target."""

_MOST = 256
"""So many tasks are looked at: a plan that takes more than that is made in several."""

_Leaving = dict[str, list[Task]]


def from_beyond(desk: Desk, asked: Asked) -> bool:
    """Whether a job that waits gets its minimum, or as much of its target as there is, from those who
    have more than theirs."""
    there = asked.counts(asked.job.present)
    least = tuple(max(0, low - count) for low, count in zip(asked.minimum, there, strict=True))
    most = list(least)
    at = _elastic(asked)
    if at is not None and asked.job.name in desk.targets:
        most[at] = max(least[at], desk.most(asked)[at] - there[at])
    return _take(desk, asked, least, tuple(most))


def even_out(desk: Desk) -> bool:
    """Those who hold something, and less than their target, get the rest of it.

    Whether it has to be looked at again: a plan changes a job once.
    """
    again = False
    changed = desk.starting()
    # what another plan has done at this very moment is let be
    acted = desk.cluster.acted is not None and desk.cluster.acted >= desk.now
    for name in sorted(desk.targets, key=lambda name: (-desk.asked[name].job.priority, name)):
        asked = desk.asked[name]
        at, present = _elastic(asked), desk.present.get(name)
        if at is None or not present or name in desk.ending:
            continue
        counts = asked.counts(present)
        more = desk.most(asked)[at] - counts[at]
        if more <= 0 or any(count < low for count, low in zip(counts, asked.minimum, strict=True)):
            continue
        one = tuple(int(each == at) for each in range(len(counts)))
        if acted or name in desk.settled or name in changed or desk.told_to_give(name):
            again = again or (not desk.is_kept_a_place(name) and _could(desk, asked, one))
            continue
        _take(desk, asked, one, tuple(more * each for each in one))
    return again


def _take(desk: Desk, asked: Asked, least: tuple[int, ...], most: tuple[int, ...]) -> bool:
    offered = [each for each, _ in zip(_beyond(desk, asked), range(_MOST), strict=False)]
    if not offered:
        return False
    room = desk.later.room
    start = room.mark()
    best: Placement | None = None
    taken = 0
    for number, (other, task) in enumerate(offered, 1):
        for tasks in other.placement((task,)):
            room.give_back(tasks)
        mark = room.mark()
        found = _placed(desk, asked, least, most)
        room.rollback(mark)
        if found is not None and (best is None or _size(found) > _size(best)):
            best, taken = found, number
        if best is not None and _size(best) >= sum(most):
            break
    room.rollback(start)
    if best is None:
        return False
    leaving = _needed(desk, best, offered[:taken])
    if not leaving or not _allowed(desk, asked, best, leaving):
        return False
    desk.take_place(asked, leaving, best, RESIZED)
    return True


def _could(desk: Desk, asked: Asked, one: tuple[int, ...]) -> bool:
    """Whether it could have one more: of others, or, having been told to give elsewhere, of what is
    free."""
    if next(_beyond(desk, asked), None) is not None:
        return True
    room = desk.current.room
    mark = room.mark()
    gang = asked.gang(asked.minimum, asked.maximum)
    found = grow(room, gang, asked.placement(desk.present[asked.job.name]), one, one)
    room.rollback(mark)
    return found is not None and not desk.refused_now(asked, asked.ask(one, new=False))


def _beyond(desk: Desk, asked: Asked) -> Iterator[tuple[Asked, Task]]:
    """What may be given: of the lowest priority first, of who has most beyond its target, the highest
    indices."""
    job, queue = asked.job, desk.queue(asked.job)
    givers: list[tuple[int, int, str, list[Task]]] = []
    for name, target in desk.targets.items():
        other = desk.asked[name]
        if name == job.name or name in desk.settled or other.job.reserved or name in desk.ending:
            continue
        if desk.queue(other.job) != queue or other.job.priority > job.priority:
            continue
        role = elastic_role(other.job)
        mine = [
            task for task in desk.present.get(name, ()) if role is not None and task.role == role.name
        ]
        over = len(mine) - target
        free = sorted((task for task in mine if task.preemptible), key=lambda task: -task.index)[:over]
        if over > 0 and free:
            givers.append((other.job.priority, -over, name, free))
    for _, _, name, tasks in sorted(givers, key=lambda giver: giver[:3]):
        for task in tasks:
            yield desk.asked[name], task


def _placed(desk: Desk, asked: Asked, least: tuple[int, ...], most: tuple[int, ...]) -> Placement | None:
    present = desk.present.get(asked.job.name, ())
    if not present:
        return place(desk.later.room, asked.gang(least, most))
    gang = asked.gang(asked.minimum, asked.maximum)
    return grow(desk.later.room, gang, asked.placement(present), least, most)


def _needed(desk: Desk, found: Placement, offered: Sequence[tuple[Asked, Task]]) -> _Leaving:
    """Those on nodes where it will be, and of these no more than it takes."""
    room = desk.later.room
    where: list[int] = [node for tasks in found for node in tasks.node.tolist()]
    nodes = {desk.names[node] for node in where}
    leaving = [each for each in offered if each[1].node in nodes]
    mark = room.mark()
    for other, task in leaving:
        for tasks in other.placement((task,)):
            room.give_back(tasks)
    for tasks in found:
        room.occupy(tasks)
    kept: list[tuple[Asked, Task]] = []
    for other, task in reversed(leaving):
        (tasks,) = [each for each in other.placement((task,)) if len(each)]
        if room.holds(tasks):
            room.occupy(tasks)
            kept.append((other, task))
    room.rollback(mark)
    gone: _Leaving = {}
    for other, task in leaving:
        if (other, task) not in kept:
            gone.setdefault(other.job.name, []).append(task)
    return gone


def _allowed(desk: Desk, asked: Asked, found: Placement, leaving: Mapping[str, Sequence[Task]]) -> bool:
    """By the queue, once those are gone, and by what its user may have."""
    queue = desk.queue(asked.job)
    amounts = asked.ask([len(tasks) for tasks in found], new=not asked.job.tasks)
    trial = desk.later.ledger.copy()
    for name, tasks in leaving.items():
        other = desk.asked[name]
        trial.charge(queue, other.ask(other.counts(tasks), new=False), -1)
    if trial.refusal(queue, amounts) is not None or desk.later.lacks(asked) is not None:
        return False
    return desk.later.users.refusal(queue, asked.job.user, amounts) is None


def _elastic(asked: Asked) -> int | None:
    role = elastic_role(asked.job)
    return None if role is None else asked.job.roles.index(role)


def _size(found: Placement) -> int:
    return sum(map(len, found))
