"""Where a job's minimum goes: what was kept for it, what is free, what comes free by its date."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.ahead import Ahead
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked, reached
from shoal.schedule.placing.asks import Placement
from shoal.schedule.placing.grow import grow
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Room

__all__ = ["by_date", "kept", "placed", "placed_by", "waits"]


def waits(asked: Asked) -> bool:
    """Whether it lacks something of its minimum, and may have it."""
    return not asked.job.suspended and not asked.reached


def kept(desk: Desk, ahead: Ahead, asked: Asked) -> bool:
    """Whether what was kept for it settles the matter."""
    job = asked.job
    if not job.reserved:
        return False
    desk.release(asked)
    placement = asked.place_kept
    enough = reached(asked.counts((*asked.present, *job.reserved)), asked.minimum)
    held = zip(asked.there, asked.counts(job.reserved), asked.maximum, strict=True)
    too_many = any(count + more > room for count, more, room in held)
    if not enough or too_many or sum(map(len, placement)) < len(job.reserved):
        return False
    amounts = asked.ask(asked.counts(job.reserved), new=not job.tasks)
    gone = not any(task.stopping for task in job.tasks)
    told = not gone or any(task.node in desk.emptying for task in job.reserved)
    if not told and _due(desk, asked) > desk.now:
        return False  # those whose dates come first are served first
    if gone and not desk.refused_now(asked, amounts):
        if desk.current.take(placement):
            desk.start(asked, placement, kept=True)
            return True
        found = None
        if waits(asked):
            room, until = desk.current.room, desk.now + job.longest_seconds
            found = ahead.beside(room, asked, until, lambda: placed(room, asked))
        if found is not None:
            desk.start(asked, found)  # what came free elsewhere meanwhile does as well
            return True
    allowed = desk.later.refusal(asked, amounts) is None and desk.later.lacks(asked) is None
    if told and allowed and desk.later.take(placement):
        desk.keep_on(asked)
        return True
    return False


def by_date(desk: Desk, order: Sequence[Asked]) -> list[Asked]:
    """Those whose dates are here, or as good as, change places: who has the earlier comes first."""
    told = [at for at, asked in enumerate(order) if asked.job.promised is not None]
    places = [at for at in told if _due(desk, order[at]) > -math.inf]
    found = list(order)
    dated = [order[at] for at in places]
    for at, asked in zip(places, sorted(dated, key=lambda each: _due(desk, each)), strict=True):
        found[at] = asked
    return found


def placed(room: Room, asked: Asked) -> Placement | None:
    """What it lacks, taken in the room; None, and nothing taken, where it does not fit."""
    if not asked.present:
        return place(room, asked.gang(asked.minimum, asked.minimum))
    missing = asked.missing
    return grow(room, asked.gang(asked.minimum, asked.maximum), asked.placed, missing, missing)


def placed_by(desk: Desk, asked: Asked) -> Placement | None:
    """Among what comes free, and by its date where it has one."""
    room = desk.later.room
    due = _due(desk, asked)
    after = [name for name in desk.ending if desk.ends(desk.asked[name].job) > due > -math.inf]
    if not after:
        return placed(room, asked)
    mark = room.mark()
    for name in sorted(after):
        desk.later.occupy(desk.asked[name].placement(desk.present.get(name, ())))
    found = placed(room, asked)
    room.rollback(mark)
    if found is not None:
        desk.later.occupy(found)
    return found


def _due(desk: Desk, asked: Asked) -> Stamp:
    """Its date, where that is no farther off than the notice; else minus infinity."""
    at = asked.job.promised
    soon = at is not None and at <= desk.now + desk.rules.notice_seconds
    return at if at is not None and soon else -math.inf
