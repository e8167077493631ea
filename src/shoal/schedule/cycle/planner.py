"""The stages of a decision, in their order.

1. What jobs give back for no one (`giving`). Who was kept a place starts there if it is free by now, or
   elsewhere if that is, or goes on waiting for it, or loses it.
2. All who wait are served in order (`lines`), each with its minimum: it starts on what is free now; or
   is kept a place among what is coming free; or others give way for it; or jobs move together for it.
3. From the first who finds no capacity on, dates decide (`dates`): nobody starts who would make somebody
   before it start later.
4. Who has lost its minimum, and found no way back to it in time, gives back the rest.
5. What is left goes to those that may have more (`growing`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.objects.meta import Stamp
from shoal.schedule.cycle import reasons
from shoal.schedule.cycle.dates import Dates
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.giving import give_back
from shoal.schedule.cycle.growing import grow_all, take_back_own
from shoal.schedule.cycle.lines import in_order
from shoal.schedule.cycle.rows import Cluster, Rules, Task
from shoal.schedule.cycle.steps import Deny, Plan, Reserve
from shoal.schedule.cycle.victims import Victims
from shoal.schedule.placing.asks import Gang, Placement
from shoal.schedule.placing.consolidate import Mover, consolidate
from shoal.schedule.placing.grow import grow
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Room

__all__ = ["plan"]

_SOON_SECONDS = 1.0


def plan(cluster: Cluster, rules: Rules, now: Stamp) -> Plan:
    """What to do now. Equal rows give an equal plan, whatever the order in which they came.

    Raises ValueError for rows that contradict each other.
    """
    cycle = _Cycle(Desk(_sorted(cluster), rules, now))
    return cycle.run()


def _sorted(cluster: Cluster) -> Cluster:
    return msgspec.structs.replace(cluster, jobs=tuple(sorted(cluster.jobs, key=lambda job: job.name)))


class _Cycle:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.dates: Dates | None = None
        self._hopeless: set[tuple[object, ...]] = set()
        self._alone: set[tuple[object, ...]] = set()
        self._victims = Victims(desk)

    def run(self) -> Plan:
        desk = self.desk
        give_back(desk)
        waiting: list[tuple[Asked, tuple[float, ...]]] = []
        for asked in desk.asked.values():
            if desk.told_to_give(asked.job.name):
                if asked.job.reserved:
                    desk.release(asked)
                continue
            if not self._waits(asked):
                if asked.job.reserved and not asked.job.suspended:
                    self._kept(asked)
                continue
            if never := reasons.never(desk, asked):
                if asked.job.reserved:
                    desk.release(asked)
                held = reasons.holding(desk, asked, self._lacks(asked), never)
                desk.deny(reasons.denied(asked, held))
            elif not self._kept(asked):
                waiting.append((asked, self._lacks(asked)))
        order = in_order(waiting, desk.columns, desk.current.ledger)
        desk.waiting = order
        if any(asked.job.promised is not None for asked in order):
            self.dates = Dates(desk, order)
        for at, asked in enumerate(order):
            self._serve(asked, order[at:])
        for asked in desk.asked.values():
            self._stale(asked)
        grow_all(desk, order)
        soon = take_back_own(desk, self._victims)
        return desk.plan(self._again_at(desk.now + _SOON_SECONDS if soon else None))

    def _again_at(self, soon: Stamp | None) -> Stamp | None:
        """When the next date, wall time, or patience with a job below its minimum is over."""
        desk = self.desk
        moments = [soon, self.dates.again_at if self.dates is not None else None]
        for name in desk.present:
            job = desk.asked[name].job
            began = job.since if job.present else desk.now
            turn = desk.rules.minimum_run_seconds or None
            length = turn if job.wall_seconds is None else job.wall_seconds
            moments.append(None if length is None else began + length)
            if job.below_since is not None and name not in desk.settled:
                moments.append(job.below_since + desk.rules.stale_seconds)
        starving = desk.rules.starving_seconds
        moments += [desk.asked[name].job.waiting_since + starving for name in desk.denied]
        return min((each for each in moments if each is not None and each > desk.now), default=None)

    def _waits(self, asked: Asked) -> bool:
        job = asked.job
        if job.suspended:
            return False
        return not _reached(asked.counts(job.present), asked.minimum)

    def _lacks(self, asked: Asked) -> tuple[float, ...]:
        """By column: up to its minimum."""
        return asked.ask(_missing(asked), new=not asked.job.tasks)

    def _gang(self, asked: Asked) -> Gang:
        return asked.gang(asked.minimum, asked.minimum)

    # 1

    def _kept(self, asked: Asked) -> bool:
        """Whether what was kept for it settles the matter."""
        desk, job = self.desk, asked.job
        if not job.reserved:
            return False
        desk.release(asked)
        placement = asked.placement(job.reserved)
        enough = _reached(asked.counts((*job.present, *job.reserved)), asked.minimum)
        held = zip(asked.counts(job.present), asked.counts(job.reserved), asked.maximum, strict=True)
        too_many = any(count + more > room for count, more, room in held)
        if not enough or too_many or sum(map(len, placement)) < len(job.reserved):
            return False
        amounts = asked.ask(asked.counts(job.reserved), new=not job.tasks)
        gone = not any(task.stopping for task in job.tasks)
        if gone and not desk.refused_now(asked, amounts):
            if _take(desk.current.room, placement):
                desk.start(asked, placement, kept=True)
                return True
            found = self._placed(desk.current.room, asked) if self._waits(asked) else None
            if found is not None:
                desk.start(asked, found)  # what came free elsewhere meanwhile does as well
                return True
        told = not gone or any(task.node in desk.emptying for task in job.reserved)
        allowed = desk.later.refusal(asked, amounts) is None and desk.later.lacks(asked) is None
        if told and allowed and _take(desk.later.room, placement):
            desk.keep(asked, job.reserved, "Departing", {})
            return True
        return False

    # 2

    def _serve(self, asked: Asked, rest: Sequence[Asked]) -> None:
        desk, job = self.desk, asked.job
        amounts = self._lacks(asked)
        there = asked.counts(job.present)
        lacking_indices = any(
            count + missing > room
            for count, missing, room in zip(there, _missing(asked), asked.room, strict=True)
        )
        if lacking_indices or (job.tasks and not job.present):
            desk.deny(Deny(job=job.name, code="Stopping"))
            return
        if reasons.forbidden(desk, asked, amounts):
            desk.deny(reasons.denied(asked, reasons.holding(desk, asked, amounts)))
            return
        alike = self._alike(asked, amounts)
        if alike in self._hopeless and (self.dates is None or not self.dates.may_start(asked)):
            self._refuse(asked, amounts, rest)
            return
        current, later = desk.current, desk.later
        free = not desk.refused_now(asked, amounts)
        allowed = self.dates is None or self.dates.may_start(asked)
        if free and allowed and (found := self._placed(current.room, asked)) is not None:
            desk.start(asked, found)
            return
        quota = later.refusal(asked, amounts)
        lacking = later.lacks(asked)
        soon = allowed or (self.dates is not None and self.dates.soon(asked))
        if quota is None and lacking is None and soon and desk.departing:
            found = self._placed(later.room, asked)
            if found is not None:
                desk.reserve(asked, found, "Departing", {})
                return
        if (
            lacking is None
            and (soon or self._above_promises(asked))
            and self._others_give_way(asked, amounts, rest)
        ):
            return
        if job.present and self._from_itself(asked, amounts):
            return
        if (
            quota is None
            and lacking is None
            and allowed
            and desk.rules.consolidate
            and self._moved_together(asked)
        ):
            return
        self._hopeless.add(alike)
        self._refuse(asked, amounts, rest)

    def _refuse(self, asked: Asked, amounts: tuple[float, ...], rest: Sequence[Asked]) -> None:
        """Its queue has no more for it; or it would be allowed to, and there is no room: from there on
        dates decide."""
        desk = self.desk
        refused = desk.later.refusal(asked, amounts)
        found = reasons.holding(desk, asked, amounts)
        if refused is not None and refused.rule != "Capacity":
            self._set_aside(asked, amounts)
            desk.deny(reasons.denied(asked, found or [("Behind", {})]))
            return
        if self.dates is None:
            self.dates = Dates(desk, rest)
        said = self.dates.answer(asked)
        step = reasons.denied(asked, [*said, *found] or [("Behind", {})])
        if (at := self.dates.promised(asked)) is not None:
            desk.date(Reserve(job=step.job, code=step.code, evidence=step.evidence, at=at))
        else:
            desk.deny(step)

    def _alike(self, asked: Asked, amounts: tuple[float, ...]) -> tuple[object, ...]:
        job = asked.job
        return (
            job.queue, job.user, job.priority, asked.need,
            tuple(job.shared.items()), amounts, job.wall_seconds, bool(job.tasks),
        )  # fmt: skip

    def _placed(self, room: Room, asked: Asked) -> Placement | None:
        if not asked.job.present:
            return place(room, self._gang(asked))
        there = asked.placement(asked.job.present)
        missing = _missing(asked)
        return grow(room, asked.gang(asked.minimum, asked.maximum), there, missing, missing)

    def _above_promises(self, asked: Asked) -> bool:
        """Whether it is of a higher class than everybody who has been promised a date."""
        return all(
            other.job.promised is None or other.job.priority < asked.job.priority
            for other in self.desk.waiting
        )

    def _others_give_way(self, asked: Asked, amounts: tuple[float, ...], rest: Sequence[Asked]) -> bool:
        desk, job = self.desk, asked.job
        one = (*(0.0 for _ in amounts[:-1]), amounts[-1])
        roles = any(role.required for role in job.roles)
        if job.present and (asked.reach.required is not None or roles or job.spread):
            return False  # where they may be depends on where the others are
        capped = desk.later.users.refusal(desk.queue(job), job.user, amounts) is not None
        if capped or desk.later.refusal(asked, one) is not None:
            return False
        missing = _missing(asked)
        alike = (job.queue, job.priority, asked.need, missing)
        found = None
        if alike not in self._alone:
            self._victims.changed(desk.changed())
            found = self._victims.give_way(asked, amounts, asked.gang(missing, missing), rest[1:])
        if found is None:
            self._alone.add(alike)
            return False
        desk.take_place(asked, *found)
        return True

    def _from_itself(self, asked: Asked, amounts: tuple[float, ...]) -> bool:
        """A role that it cannot do without gets the place of what it has beyond its needs of another."""
        desk, job = self.desk, asked.job
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
            found = self._placed(room, asked)
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

    def _moved_together(self, asked: Asked) -> bool:
        desk = self.desk
        if asked.job.present:
            return False
        movers = [
            desk.asked[name]
            for name, present in desk.present.items()
            if desk.asked[name].job.movable
            and desk.asked[name].job.preemptible and all(task.preemptible for task in present)
            and not desk.asked[name].job.reserved and name not in desk.settled
            and name not in desk.ending
            and len(present) == len(desk.asked[name].job.tasks)
        ]  # fmt: skip
        offered = [self._mover(each) for each in movers]
        found = consolidate(desk.later.room, self._gang(asked), offered)
        if found is None:
            return False
        for at, to in found.moves:
            desk.move(movers[at], to, asked.job.name)
        names = sorted(movers[at].job.name for at, _ in found.moves)
        desk.reserve(asked, found.start, "Consolidating", {"waitsFor": names})
        return True

    def _mover(self, asked: Asked) -> Mover:
        present = self.desk.present[asked.job.name]
        counts = asked.counts(present)
        return Mover(asked.gang(counts, counts), asked.placement(present))

    def _set_aside(self, asked: Asked, amounts: tuple[float, ...]) -> None:
        """Who has starved for its queue's sake has what comes free there kept, one job a queue."""
        desk, job = self.desk, asked.job
        if desk.now - job.waiting_since >= desk.rules.starving_seconds:
            for books in (desk.current, desk.later):
                books.set_aside(desk.queue(job), amounts)

    # 3

    def _stale(self, asked: Asked) -> None:
        desk, job = self.desk, asked.job
        present = desk.present.get(job.name, ())
        if job.name in desk.settled or job.below_since is None or not present:
            return
        if _reached(asked.counts(present), asked.minimum):
            return
        if desk.now - job.below_since >= desk.rules.stale_seconds:
            desk.depart(asked, present, "", "BelowMinimum", minimum=sum(asked.minimum))


def _reached(counts: Sequence[int], least: Sequence[int]) -> bool:
    return all(count >= low for count, low in zip(counts, least, strict=True)) and any(counts)


def _missing(asked: Asked) -> tuple[int, ...]:
    """Of each role, up to the minimum."""
    there = asked.counts(asked.job.present)
    return tuple(max(0, low - count) for low, count in zip(asked.minimum, there, strict=True))


def _take(room: Room, placement: Placement) -> bool:
    """Exactly these places, or nothing."""
    mark = room.mark()
    for tasks in placement:
        if len(tasks) and not room.holds(tasks):
            room.rollback(mark)
            return False
        room.occupy(tasks)
    return True
