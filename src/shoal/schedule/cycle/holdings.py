"""What those who hold something hold, as arrays: one row for each job, written when its row changes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.gangs import Asked

__all__ = ["Holdings"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_FIRST = 64


class Holdings:
    """Mutable; arrays are to be read by others, not written. `width`: columns of `Needs.amounts`."""

    def __init__(self, width: int) -> None:
        self.at: dict[str, int] = {}
        """The row of each job that holds something which is to stay."""
        self.asked: list[Asked | None] = [None] * _FIRST
        """By row; None where there is nobody."""
        self.held: Ints = np.zeros((_FIRST, width), dtype=np.int64)
        """What it holds and does not lend."""
        self.lent: Ints = np.zeros((_FIRST, width), dtype=np.int64)
        """Beyond its minimum, and may be taken back."""
        self.ends: Floats = np.full(_FIRST, math.inf)
        """When that is back at the latest."""
        self.since: Floats = np.zeros(_FIRST)
        """When it began to hold it."""
        self.wall: Floats = np.full(_FIRST, math.inf)
        """Its wall time; infinity where it says none."""
        self.firm: NDArray[np.bool_] = np.zeros(_FIRST, dtype=np.bool_)
        """Whether it cannot be preempted."""
        self._unused = list(range(_FIRST))[::-1]

    def put(self, asked: Asked) -> None:
        """A job, or another row of one that is known."""
        name = asked.job.name
        if not asked.present:
            self.drop(name)
            return
        if name not in self.at:
            if not self._unused:
                self._grow()
            self.at[name] = self._unused.pop()
        at = self.at[name]
        self.asked[at] = asked
        self.held[at] = asked.held
        self.lent[at] = asked.lent if asked.needs.elastic else 0
        self.ends[at] = asked.ends
        job = asked.job
        self.since[at] = job.since
        self.wall[at] = math.inf if job.wall_seconds is None else job.wall_seconds
        self.firm[at] = not job.preemptible

    def drop(self, name: str) -> None:
        """It holds nothing any more, or is no more."""
        at = self.at.pop(name, None)
        if at is not None:
            self.asked[at] = None
            self.held[at] = self.lent[at] = 0
            self.ends[at] = math.inf
            self._unused.append(at)

    def ending(self, by: Stamp) -> set[str]:
        """Whose time is over by then."""
        over: Ints = np.flatnonzero(self.ends <= by)
        return {asked.job.name for asked in self.of(over)}

    def rows(self, without: set[str]) -> Ints:
        """Of all but these."""
        there = np.zeros(len(self.ends), dtype=np.bool_)
        there[list(self.at.values())] = True
        there[[self.at[name] for name in without if name in self.at]] = False
        return np.flatnonzero(there)

    def of(self, rows: Ints) -> list[Asked]:
        """Whose these rows are."""
        places: list[int] = rows.tolist()
        return [asked for at in places if (asked := self.asked[at]) is not None]

    def _grow(self) -> None:
        size = len(self.ends)
        self.asked += [None] * size
        for name in ("held", "lent", "ends", "since", "wall", "firm"):
            rows = getattr(self, name)
            setattr(self, name, np.concatenate((rows, np.empty_like(rows))))
        self.ends[size:] = math.inf
        self._unused += range(2 * size - 1, size - 1, -1)
