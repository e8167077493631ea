"""Who may be served before its date: who has a better right than all that are told one."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.cycle.dates import Dates
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.ranks import Ranks

__all__ = ["Precedence"]


class Precedence:
    """Of those who wait in one decision."""

    def __init__(self, desk: Desk, ranks: Ranks) -> None:
        self._desk, self._ranks = desk, ranks
        self._line: tuple[Sequence[Asked], Dates | None] = ((), None)
        self._place: dict[str, int] = {}
        self._told: list[Asked] = []
        """Who was told a date before this decision, those of the highest classes first."""
        self._keeps: list[tuple[int, Asked]] = []
        """For whom something is kept by this one, and its place in the line."""

    def above_promises(self, asked: Asked, dates: Dates | None) -> bool:
        """Whether it has a better right than everybody who has been promised a date, or is told one
        before it, or has what comes free kept."""
        self._look(dates)
        settled, above = self._desk.settled, self._ranks.above
        for other in self._told:
            if other.number == asked.number or other.job.name in settled:
                continue
            if not above(asked, other):
                return False
        mine = self._place.get(asked.job.name, len(self._place))
        for place, other in self._keeps:
            if place >= mine:
                break
            if other.job.name not in settled and not above(asked, other):
                return False
        return True

    def _look(self, dates: Dates | None) -> None:
        line, told_by = self._line
        waiting, class_of = self._desk.waiting, self._desk.class_of
        if line is waiting and told_by is dates:
            return
        self._line = waiting, dates
        self._place = {asked.job.name: at for at, asked in enumerate(waiting)}
        told = [asked for asked in waiting if asked.job.promised is not None]
        self._told = sorted(told, key=lambda each: (-class_of(each), each.job.name))
        self._keeps = []
        if dates is not None:
            self._keeps = [(at, asked) for at, asked in enumerate(waiting) if dates.keeps(asked)]
