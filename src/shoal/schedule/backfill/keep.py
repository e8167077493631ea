"""Dates promised before are laid where they were; where there is no room any more, as soon after as
there is.

Work that ends a moment late is a reason to be a moment late, and none to be put behind all who came
later. So dates are laid one by one in their order, and one for which there is room a little later is
laid there, whatever that means for those after it. One that cannot be kept even so moves behind those
that can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Settings, Waiting
from shoal.schedule.backfill.board import Board
from shoal.schedule.backfill.shapes import Shape

__all__ = ["Dates", "lay", "promised_ends"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Dates:
    """Where each job stands in the plan; filled in while it is made."""

    start: Floats
    """(m,), infinity where it has no date."""
    end: Floats
    """(m,)."""
    pool: Ints
    """(m,), -1 where it has none."""


def lay(
    board: Board,
    waiting: Waiting,
    shapes: Sequence[Shape],
    of: Sequence[int],
    settings: Settings,
    jobs: range,
    dates: Dates,
) -> tuple[Board, Flags, Flags]:
    """The board with the promises of `jobs` taken from it, whose they are, (len(jobs),), and who of
    these keeps its date.

    All at once if that leaves nothing short, else one by one in the order of their dates. A promise
    that is due starts now; who never has room loses its date.
    """
    now, those = board.grid.now, slice(jobs.start, jobs.stop)
    date, pool = waiting.promised[those], waiting.promised_pool[those]
    kept = np.isfinite(date)
    start = np.where(kept, np.maximum(date, now), now)
    end = promised_ends(date, waiting.seconds[those], settings, now)
    allowed = [bool(kept[at]) and int(pool[at]) in shapes[of[jobs[at]]].pools for at in range(len(jobs))]
    kept &= np.array(allowed, dtype=np.bool_)
    if not kept.any():
        return board, kept, kept
    amounts, shared = waiting.amounts[those], waiting.shared[those]
    whole = board.after(pool[kept], start[kept], end[kept], amounts[kept], shared[kept])
    if whole.short():
        whole = board
        order = np.flatnonzero(kept)
        waits: list[int] = order[np.argsort(date[order], kind="stable")].tolist()
        for most in (settings.lateness_seconds, np.inf):
            passed, waits = waits, []
            for at in passed:
                begin, shape = float(start[at]), shapes[of[jobs[at]]]
                fixed = bool(waiting.fixed[jobs[at]])
                if not fixed and not whole.fits(shape, int(pool[at]), begin, float(end[at])):
                    seconds = float(waiting.seconds[jobs[at]]) + settings.slack_seconds
                    there = replace(shape, pools=(int(pool[at]),))
                    begin, _ = whole.earliest(there, seconds, begin)
                    if begin > start[at] + most:
                        waits.append(at)
                        continue
                    start[at], end[at] = begin, board.grid.up(begin + seconds)
                kept[at] = np.isfinite(begin)
                if kept[at]:
                    whole.take(shape, int(pool[at]), begin, float(end[at]))
    places = np.arange(jobs.start, jobs.stop)[kept]
    dates.start[places], dates.end[places], dates.pool[places] = start[kept], end[kept], pool[kept]
    return whole, kept, kept & (start <= np.maximum(date, now))


def promised_ends(date: Floats, seconds: Floats, settings: Settings, now: float) -> Floats:
    """(n,): when the capacity of jobs is back that were promised `date` and run for `seconds`, both
    (n,), infinity for any that has no date. One that is late by no more than the slack is back when it
    would have been, or each such second would move who comes after it."""
    begun = np.where(now - date <= settings.slack_seconds, date, now)
    return settings.grid(now).all_up(begun + seconds + settings.slack_seconds)
