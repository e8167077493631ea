"""Who has a date gets the very place that it was told with it: from who leaves it by then, and from who
has been lent it."""

from __future__ import annotations

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.exchanges import ends
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.laid import Laid
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.units import Unit, units_of

__all__ = ["OwnPlace"]


class OwnPlace:
    """Of one decision."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def kept(self, asked: Asked, laid: Laid) -> bool:
        """Whether it is kept its place now: nobody is there any more by then, or those who are there
        have it for as long as nobody needs it, and are told to go."""
        desk = self._desk
        amounts = asked.ask(asked.minimum, new=True)
        if desk.later.refusal(asked, amounts) is None and desk.later.take(laid.place):
            desk.reserve(asked, laid.place, "Departing", {}, laid.start)
            desk.by(asked, laid.start, laid.place)
            return True
        leaving = self._lent(asked, laid)
        if not leaving or not self._allowed(asked, amounts, leaving):
            return False
        desk.take_place(asked, leaving, laid.place)
        desk.by(asked, laid.start, laid.place)
        return True

    def _lent(self, asked: Asked, laid: Laid) -> dict[str, list[Task]]:
        """What others have there beyond their minimum, and no more of it than has to go; nothing where
        that is not enough."""
        desk = self._desk
        room = desk.later.room
        nodes = {node for tasks in laid.place for node in tasks.node.tolist()}
        start = room.mark()
        going: list[Unit] = []
        for name in sorted(desk.present):
            for unit in self._beyond(desk.asked[name], asked):
                if not nodes.isdisjoint(unit.nodes):
                    going.append(unit)
                    for tasks in unit.placement:
                        room.give_back(tasks)
        leaving: dict[str, list[Task]] = {}
        if desk.later.take(laid.place):
            for unit in reversed(going):
                if all(room.holds(tasks) for tasks in unit.placement):
                    for tasks in unit.placement:
                        room.occupy(tasks)
                else:
                    leaving.setdefault(unit.asked.job.name, []).extend(unit.tasks)
        room.rollback(start)
        return leaving

    def _beyond(self, other: Asked, asked: Asked) -> list[Unit]:
        """What this job may ask back of another of its queue."""
        desk, job = self._desk, other.job
        if not other.needs.elastic or other.queue != asked.queue or job.priority > asked.job.priority:
            return []
        there = desk.offered(job.name)
        units = units_of(other, there, other.queue, other.number, desk.began(job))
        return [unit for unit in units if not unit.core]

    def _allowed(self, asked: Asked, amounts: tuple[float, ...], leaving: dict[str, list[Task]]) -> bool:
        """By the queue and what its user may have, once those are gone."""
        desk = self._desk
        given = [
            (desk.asked[name], desk.asked[name].ask(desk.asked[name].counts(tasks), new=False))
            for name, tasks in leaving.items()
        ]
        for other, less in given:
            desk.later.charge(other, less, -1)
        refused = desk.later.refusal(asked, amounts)
        for other, less in given:
            desk.later.charge(other, less)
        return refused is None and ends(desk, asked, asked.minimum, leaving)
