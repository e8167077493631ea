"""A plan from what another policy says that each job should have.

Who should have more gets it where it is free, or keeps a place among what is coming free, or gets the
place of those who should have less; these give nothing up for nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from shoal.objects.meta import Stamp
from shoal.schedule.allot import Allot, Nodes
from shoal.schedule.baselines.dragon import Dragon
from shoal.schedule.cycle import reasons
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.peers.contenders import Field, field
from shoal.schedule.cycle.peers.named import STRICT
from shoal.schedule.cycle.rows import Task
from shoal.schedule.placing.asks import Placement
from shoal.schedule.placing.grow import grow
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Room

__all__ = ["follow"]


def follow(desk: Desk, policy: Allot, waiting: Sequence[Asked]) -> Stamp | None:
    """All who wait are served as the policy says, or told why not. When to ask it again though nothing
    has happened."""
    allowed = [asked for asked in waiting if not _forbidden(desk, asked)]
    there = field(desk, allowed)
    if there is not None:
        given = policy.allot(there.contenders, there.capacity, desk.now)
        _Following(desk, there, [given.get(each.name, ()) for each in there.contenders]).go()
    for asked in waiting:
        if asked.job.name not in desk.settled and not asked.job.present:
            found = reasons.holding(desk, asked, _amounts(asked, _missing(desk, asked, asked.minimum)))
            desk.deny(reasons.denied(asked, found or [("Behind", {})]))
    return _again(desk, policy, allowed)


class _Following:
    def __init__(self, desk: Desk, there: Field, given: Sequence[Nodes]) -> None:
        self._desk = desk
        self._there = there
        self._given = given

    def go(self) -> None:
        for at, asked in enumerate(self._there.asked):
            wanted = self._there.counts(at, len(self._given[at]))
            missing = _missing(self._desk, asked, wanted)
            name = asked.job.name
            if not any(missing) or name in self._desk.settled or self._desk.told_to_give(name):
                continue
            served = self._served(asked, missing)
            # nodes are not as even as what the policy was told, and who comes first stays first
            if not served and self._desk.rules.policy == STRICT and name not in self._desk.present:
                return

    def _served(self, asked: Asked, missing: tuple[int, ...]) -> bool:
        desk = self._desk
        amounts = _amounts(asked, missing)
        starts = not any(task.stopping for task in asked.job.tasks) or bool(asked.job.present)
        if starts and not desk.refused_now(asked, amounts):
            found = _placed(desk, desk.current.room, asked, missing)
            if found is not None:
                desk.start(asked, found)
                return True
        refused = desk.later.refusal(asked, amounts) is not None or desk.later.lacks(asked) is not None
        if desk.departing and not refused:
            found = _placed(desk, desk.later.room, asked, missing)
            if found is not None:
                desk.reserve(asked, found, "Departing", {})
                return True
        return self._others_give(asked, missing)

    def _others_give(self, asked: Asked, missing: tuple[int, ...]) -> bool:
        """Those who should have less, the first of them first, as far as it takes."""
        desk = self._desk
        room = desk.later.room
        start = room.mark()
        leaving: dict[str, list[Task]] = {}
        found: Placement | None = None
        for other, going in self._offered():
            leaving.setdefault(other.job.name, []).extend(going)
            for tasks in other.placement(going):
                room.give_back(tasks)
            mark = room.mark()
            found = _placed(desk, room, asked, missing)
            room.rollback(mark)
            if found is not None:
                break
        room.rollback(start)
        if found is None or not self._lawful(asked, missing, leaving):
            return False
        desk.take_place(asked, leaving, found)
        return True

    def _offered(self) -> Iterator[tuple[Asked, Sequence[Task]]]:
        """What goes at once: a task, or all of a job that should have nothing."""
        desk = self._desk
        for at, asked in enumerate(self._there.asked):
            name = asked.job.name
            if name in desk.settled or name in desk.ending or not asked.job.preemptible:
                continue
            wanted = self._there.counts(at, len(self._given[at]))
            surplus = self._surplus(asked, wanted, self._given[at])
            if not any(wanted):
                if surplus and len(surplus) == len(desk.present[name]):
                    yield asked, surplus
                continue
            yield from ((asked, (task,)) for task in surplus)

    def _surplus(self, asked: Asked, wanted: Sequence[int], nodes: Nodes) -> list[Task]:
        """Of each role: those on nodes that it should leave first, then the highest indices."""
        desk = self._desk
        stays = [desk.names[node] for node in nodes]
        found: list[Task] = []
        for role, count in zip(asked.job.roles, wanted, strict=True):
            mine = [task for task in desk.present.get(asked.job.name, ()) if task.role == role.name]
            over = len(mine) - count
            left = list(stays)
            ranked: list[tuple[bool, int, Task]] = []
            for task in sorted(mine, key=lambda task: task.index):
                keeps = task.node in left
                if keeps:
                    left.remove(task.node)
                ranked.append((keeps, -task.index, task))
            ranked.sort(key=lambda each: each[:2])
            found += [task for _, _, task in ranked[: max(0, over)] if task.preemptible]
        return found

    def _lawful(self, asked: Asked, missing: tuple[int, ...], leaving: dict[str, list[Task]]) -> bool:
        """Whether limits let it have the place once those are gone."""
        desk = self._desk
        trial = desk.later.ledger.copy()
        for name, tasks in leaving.items():
            other = desk.asked[name]
            trial.charge(desk.queue(other.job), other.ask(other.counts(tasks), new=False), -1)
        amounts = _amounts(asked, missing)
        if trial.refusal(desk.queue(asked.job), amounts) is not None:
            return False
        user = desk.later.users.refusal(desk.queue(asked.job), asked.job.user, amounts)
        return user is None and desk.later.lacks(asked) is None


def _placed(desk: Desk, room: Room, asked: Asked, missing: tuple[int, ...]) -> Placement | None:
    present = desk.present.get(asked.job.name, ())
    if not present:
        return place(room, asked.gang(missing, missing))
    gang = asked.gang(asked.minimum, asked.maximum)
    return grow(room, gang, asked.placement(present), missing, missing)


def _missing(desk: Desk, asked: Asked, wanted: Sequence[int]) -> tuple[int, ...]:
    """As far as indices are free for it."""
    there = asked.counts(desk.present.get(asked.job.name, ()))
    rows = zip(wanted, asked.room, there, strict=True)
    return tuple(max(0, min(count, room) - held) for count, room, held in rows)


def _amounts(asked: Asked, counts: Sequence[int]) -> tuple[float, ...]:
    return asked.ask(counts, new=not asked.job.tasks)


def _forbidden(desk: Desk, asked: Asked) -> bool:
    """By a limit: it waits for that, and nobody waits for it."""
    refused = desk.later.refusal(asked, _amounts(asked, _missing(desk, asked, asked.minimum)))
    return refused is not None and refused.rule not in ("Capacity", "Kept")


def _again(desk: Desk, policy: Allot, waiting: Sequence[Asked]) -> Stamp | None:
    """DRAGON acts when somebody has waited for long enough, and when it has been quiet for long enough;
    not while it tries in vain."""
    if not isinstance(policy, Dragon):
        return None
    left = [asked.job.created for asked in waiting if asked.job.name not in desk.settled]
    overdue = min(left, default=math.inf) + desk.rules.patience_seconds
    moments = [] if overdue <= desk.now else [overdue, policy.quiet_until]
    return min((each for each in moments if desk.now < each < math.inf), default=None)
