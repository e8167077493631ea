"""Who has more than its target gives to who waits, or has less than its own: task by task.

Of the same queue, of no higher priority, never below a minimum, and only as much as the beneficiary then
has a place for. It is kept that place in the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from shoal.schedule.cycle.ahead import Ahead
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.sizes.targets import targets
from shoal.schedule.placing.asks import Placement
from shoal.schedule.placing.grow import grow
from shoal.schedule.placing.place import place

__all__ = ["RESIZED", "Exchange"]

RESIZED = "Resized"
"""Code of a shrink to a target."""

_MOST = 256
"""So many tasks are looked at: a plan that takes more than that is made in several."""

_Leaving = dict[str, list[Task]]


class Exchange:
    """Of one plan: targets, and what comes of them."""

    def __init__(self, desk: Desk, ahead: Ahead) -> None:
        self._desk, self._ahead = desk, ahead
        self._givers: dict[int, list[str]] = {}
        self._without = 0

    def aim(self, waiting: Sequence[Asked]) -> None:
        """Targets anew, where `waiting` are to be served; nobody, where that is over and only who holds
        something can grow. Raises ValueError as `targets` does."""
        desk = self._desk
        desk.targets = targets(desk, waiting)
        self._without = self._untargeted()
        self._givers.clear()
        found: list[tuple[int, int, int, str]] = []
        for name, target in desk.targets.items():
            asked = desk.asked[name]
            at = asked.elastic
            over = 0 if at is None else asked.counts(desk.present.get(name, ()))[at] - target
            if over > 0:
                found.append((desk.queue(asked.job), asked.job.priority, -over, name))
        for queue, _, _, name in sorted(found):
            self._givers.setdefault(queue, []).append(name)

    def from_beyond(self, asked: Asked) -> bool:
        """Whether a job that waits gets its minimum, or as much of its target as there is, from those
        who have more than theirs."""
        desk = self._desk
        there = asked.counts(asked.present)
        least = tuple(max(0, low - count) for low, count in zip(asked.minimum, there, strict=True))
        most = list(least)
        at = asked.elastic
        if at is not None and asked.job.name in desk.targets:
            most[at] = max(least[at], desk.most(asked)[at] - there[at])
        return self._take(asked, least, tuple(most))

    def even_out(self) -> bool:
        """Those who hold something, and less than their target, get the rest of it.

        Whether it has to be looked at again: a plan changes a job once.
        """
        desk = self._desk
        if not desk.targets:
            return False
        if self._untargeted() != self._without:
            self.aim(())  # jobs without a target have grown as well
        again = False
        changed = desk.starting()
        # what another plan has done at this very moment is let be
        acted = desk.cluster.acted is not None and desk.cluster.acted >= desk.now
        for name in sorted(desk.targets, key=lambda name: (-desk.asked[name].job.priority, name)):
            asked = desk.asked[name]
            at, present = asked.elastic, desk.present.get(name)
            if at is None or not present or name in desk.ending:
                continue
            counts = asked.counts(present)
            more = desk.most(asked)[at] - counts[at]
            if more <= 0 or any(count < low for count, low in zip(counts, asked.minimum, strict=True)):
                continue
            one = tuple(int(each == at) for each in range(len(counts)))
            if acted or name in desk.settled or name in changed or desk.told_to_give(name):
                again = again or (not desk.is_kept_a_place(name) and self._could(asked, one))
                continue
            self._take(asked, one, tuple(more * each for each in one))
        return again

    def _untargeted(self) -> int:
        """How many tasks those hold who have no target."""
        desk = self._desk
        if not desk.targets:
            return 0
        return sum(len(tasks) for name, tasks in desk.present.items() if name not in desk.targets)

    def _take(self, asked: Asked, least: tuple[int, ...], most: tuple[int, ...]) -> bool:
        desk = self._desk
        offered = list(islice(self._beyond(asked), _MOST))
        if not offered:
            return False
        room = desk.later.room
        start = room.mark()
        best: Placement | None = None
        taken = 0
        # tasks are mostly of one size, so that with fewer there is mostly less
        until = desk.began(asked.job) + asked.job.longest_seconds
        for number in range(min(sum(most), len(offered)), len(offered) + 1):
            self._free(offered[taken:number])
            taken = number
            mark = room.mark()
            with self._ahead.apart(room, asked, until):
                inner = room.mark()
                found = _placed(desk, asked, least, most)
                room.rollback(inner)
            room.rollback(mark)
            if found is not None and (best is None or _size(found) > _size(best)):
                best = found
            if best is not None and _size(best) >= sum(most):
                break
        room.rollback(start)
        if best is None:
            return False
        leaving = self._needed(best, offered[:taken])
        if not leaving or not _allowed(desk, asked, best, leaving):
            return False
        desk.take_place(asked, leaving, best, RESIZED)
        return True

    def _could(self, asked: Asked, one: tuple[int, ...]) -> bool:
        """Whether it could have one more: of others, or, having been told to give elsewhere, of what is
        free."""
        desk = self._desk
        if next(self._beyond(asked), None) is not None:
            return True
        room = desk.current.room
        mark = room.mark()
        gang = asked.gang(asked.minimum, asked.maximum)
        found = grow(room, gang, asked.placement(desk.present[asked.job.name]), one, one)
        room.rollback(mark)
        return found is not None and not desk.refused_now(asked, asked.ask(one, new=False))

    def _beyond(self, asked: Asked) -> Iterator[tuple[Asked, Task]]:
        """What may be given: of the lowest priority first, of who had most beyond its target first, the
        highest indices."""
        desk, job = self._desk, asked.job
        for name in self._givers.get(desk.queue(job), ()):
            other = desk.asked[name]
            if name == job.name or other.job.priority > job.priority:
                continue
            if name in desk.settled or other.job.reserved or name in desk.ending:
                continue
            at = other.elastic
            role = "" if at is None else other.job.roles[at].name
            mine = [task for task in desk.present.get(name, ()) if task.role == role]
            over = max(0, len(mine) - desk.targets[name])
            free = sorted((task for task in mine if task.preemptible), key=lambda task: -task.index)
            yield from ((other, task) for task in free[:over])

    def _needed(self, found: Placement, offered: Sequence[tuple[Asked, Task]]) -> _Leaving:
        """Those on nodes where it will be, and of these no more than it takes."""
        desk = self._desk
        room = desk.later.room
        where: list[int] = [node for tasks in found for node in tasks.node.tolist()]
        nodes = {desk.names[node] for node in where}
        leaving = [each for each in offered if each[1].node in nodes]
        mark = room.mark()
        self._free(leaving)
        for tasks in found:
            room.occupy(tasks)
        gone: _Leaving = {}
        for other, task in reversed(leaving):
            (tasks,) = [each for each in other.placement((task,)) if len(each)]
            if room.holds(tasks):
                room.occupy(tasks)
            else:
                gone.setdefault(other.job.name, []).insert(0, task)
        room.rollback(mark)
        return gone

    def _free(self, tasks: Sequence[tuple[Asked, Task]]) -> None:
        for other, task in tasks:
            for each in other.placement((task,)):
                self._desk.later.room.give_back(each)


def _placed(desk: Desk, asked: Asked, least: tuple[int, ...], most: tuple[int, ...]) -> Placement | None:
    present = desk.present.get(asked.job.name, ())
    if not present:
        return place(desk.later.room, asked.gang(least, most))
    gang = asked.gang(asked.minimum, asked.maximum)
    return grow(desk.later.room, gang, asked.placement(present), least, most)


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


def _size(found: Placement) -> int:
    return sum(map(len, found))
