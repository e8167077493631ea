"""Who may be served before its date: who is of a higher class than all that are told one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.cycle.dates import Dates
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked

__all__ = ["Precedence"]


class Precedence:
    """Of those who wait in one decision; looked at anew once anything has been done."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._seen: tuple[object, ...] = ()
        self._line: tuple[Sequence[Asked], Dates | None] = ((), None)
        self._place: dict[str, int] = {}
        self._keeps: NDArray[np.float64] = np.empty(0)
        """Of each in the line its priority, where something is kept for it."""
        self._told: list[tuple[float, str]] = []
        """The priorities of those who were told a date, the highest first."""
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
        line, told_by = self._line
        if line is not desk.waiting or told_by is not dates:
            self._line = (desk.waiting, dates)
            self._look_at_line(dates)
        served = [place for name in desk.settled if (place := self._place.get(name)) is not None]
        unserved = [each for each in self._told if each[1] not in desk.settled]
        self._promised = unserved[:2]
        keeps = self._keeps.copy()
        keeps[served] = -math.inf
        # before the first there is nobody; the last stands for who is not in the line
        self._kept = [-math.inf, *np.maximum.accumulate(keeps).tolist()]

    def _look_at_line(self, dates: Dates | None) -> None:
        waiting = self._desk.waiting
        self._place = {asked.job.name: at for at, asked in enumerate(waiting)}
        told = [asked.job for asked in waiting if asked.job.promised is not None]
        self._told = sorted(((float(job.priority), job.name) for job in told), reverse=True)
        keeps = [
            float(asked.job.priority) if dates is not None and dates.keeps(asked) else -math.inf
            for asked in waiting
        ]
        self._keeps = np.array(keeps, dtype=np.float64)
