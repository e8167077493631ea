"""Who may be served before its date: who is of a higher class than all that are told one."""

from __future__ import annotations

import math
from itertools import accumulate

from shoal.schedule.cycle.dates import Dates
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked

__all__ = ["Precedence"]


class Precedence:
    """Of those who wait in one decision; looked at anew once anything has been done."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._seen: tuple[object, ...] = ()
        self._place: dict[str, int] = {}
        self._promised: list[tuple[float, str]] = []
        self._kept: list[float] = []

    def above_promises(self, asked: Asked, dates: Dates | None) -> bool:
        """Whether it is of a higher class than everybody who has been promised a date, or is told one
        before it, or has what comes free kept."""
        self._look(dates)
        name, priority = asked.job.name, asked.job.priority
        promised = next((most for most, other in self._promised if other != name), -math.inf)
        kept = self._kept[self._place.get(name, -1)]
        return priority > max(promised, kept)

    def _look(self, dates: Dates | None) -> None:
        desk = self._desk
        state = (desk.effects, len(desk.settled), dates)
        if state == self._seen:
            return
        self._seen = state
        self._place = {asked.job.name: at for at, asked in enumerate(desk.waiting)}
        waits = [(asked, asked.job.name not in desk.settled) for asked in desk.waiting]
        promised = [
            (float(asked.job.priority), asked.job.name)
            for asked, unserved in waits
            if unserved and asked.job.promised is not None
        ]
        self._promised = sorted(promised, reverse=True)[:2]
        kept = (
            asked.job.priority if unserved and dates is not None and dates.keeps(asked) else -math.inf
            for asked, unserved in waits
        )
        # before the first there is nobody; the last stands for who is not in the line
        self._kept = list(accumulate(kept, max, initial=-math.inf))
