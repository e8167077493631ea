"""Ways to make room for a job that finds none: others give way, it gives way to itself, others move.

Each is all or nothing, and ends with the job being kept the place.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.exchanges import ends
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.lines import Rest
from shoal.schedule.cycle.places import placed
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.victims import Victims
from shoal.schedule.placing.consolidate import Mover, consolidate

__all__ = ["Ways"]


class Ways:
    """Of one decision."""

    def __init__(self, desk: Desk, victims: Victims) -> None:
        self._desk = desk
        self._victims = victims
        self._alone: set[tuple[object, ...]] = set()

    def forget(self) -> None:
        """For whom nobody gave way may have a chance again."""
        self._alone.clear()

    def others_give_way(self, asked: Asked, amounts: tuple[float, ...], rest: Rest) -> bool:
        """Surplus of others first, then all of them. `rest`: those who wait behind it."""
        desk, job = self._desk, asked.job
        one = (*(0.0 for _ in amounts[:-1]), amounts[-1])
        roles = any(role.required for role in job.roles)
        if asked.present and (asked.reach.required is not None or roles or job.spread):
            return False  # where they may be depends on where the others are
        capped = desk.later.users.refusal(desk.queue(job), job.user, amounts) is not None
        if capped or desk.later.refusal(asked, one) is not None:
            return False
        missing = asked.missing
        alike = (job.queue, job.priority, asked.need, missing)
        found = None
        if alike not in self._alone:
            self._victims.changed(desk.changed())
            found = self._victims.give_way(asked, amounts, asked.gang(missing, missing), rest)
        if found is None or not ends(desk, asked, missing, found[0]):
            self._alone.add(alike)
            return False
        desk.take_place(asked, *found)
        return True

    def from_itself(self, asked: Asked, amounts: tuple[float, ...]) -> bool:
        """A role that it cannot do without gets the place of what it has beyond its needs of another."""
        desk, job = self._desk, asked.job
        if job.name in desk.ending:
            return False  # it is over before it could begin again
        present = desk.present.get(job.name, ())
        spare = dict(zip((role.name for role in job.roles), asked.surplus(present), strict=True))
        room, going = desk.later.room, list[Task]()
        mark = room.mark()
        found = None
        for task in sorted(present, key=lambda task: -task.index):
            if found is not None or not (task.preemptible and spare[task.role]):
                continue
            spare[task.role] -= 1
            going.append(task)
            for tasks in asked.placement((task,)):
                room.give_back(tasks)
            before = room.mark()
            found = placed(room, asked)
            room.rollback(before)
        room.rollback(mark)
        given = asked.ask(asked.counts(going), new=False)
        desk.later.charge(asked, given, -1)
        refused = desk.later.refusal(asked, amounts)
        desk.later.charge(asked, given)
        if found is None or refused is not None:
            return False
        desk.take_place(asked, {job.name: going}, found)
        return True

    def moved_together(self, asked: Asked) -> bool:
        """Others go on elsewhere, all of them, so that there is room in one piece."""
        desk = self._desk
        if asked.present:
            return False
        movers = [
            desk.asked[name] for name, there in desk.present.items() if self._may_move(name, there)
        ]
        gang = asked.gang(asked.minimum, asked.minimum)
        found = consolidate(desk.later.room, gang, [self._mover(each) for each in movers])
        if found is None:
            return False
        for at, to in found.moves:
            desk.move(movers[at], to, asked.job.name)
        names = sorted(movers[at].job.name for at, _ in found.moves)
        desk.reserve(asked, found.start, "Consolidating", {"waitsFor": names})
        return True

    def _may_move(self, name: str, there: Sequence[Task]) -> bool:
        desk, asked = self._desk, self._desk.asked[name]
        return (
            (asked.moves if there is asked.present else asked.may_move(there))
            and name not in desk.settled
            and desk.now - asked.job.since >= desk.rules.settling_seconds
            and name not in desk.ending
        )

    def _mover(self, asked: Asked) -> Mover:
        there = self._desk.present[asked.job.name]
        if there is asked.present:
            return asked.mover
        counts = asked.counts(there)
        return Mover(asked.gang(counts, counts), asked.placement(there))
