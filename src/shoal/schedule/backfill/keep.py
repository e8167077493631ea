"""Dates promised before are laid where they were, as far as there still is room for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Settings, Waiting
from shoal.schedule.backfill.board import Board
from shoal.schedule.backfill.shapes import Shape

__all__ = ["Dates", "lay", "promised_ends"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
) -> tuple[Board, NDArray[np.bool_]]:
    """The board with the promises of `jobs` taken from it, and whose they are, (len(jobs),).

    All at once if that leaves nothing short, else one by one in order, and those without room lose
    their date. A promise that is due starts now.
    """
    now, those = board.grid.now, slice(jobs.start, jobs.stop)
    date, pool = waiting.promised[those], waiting.promised_pool[those]
    kept = np.isfinite(date)
    start = np.where(kept, np.maximum(date, now), now)
    end = promised_ends(date, waiting.seconds[those], settings, now)
    allowed = [bool(kept[at]) and int(pool[at]) in shapes[of[jobs[at]]].pools for at in range(len(jobs))]
    kept &= np.array(allowed, dtype=np.bool_)
    if not kept.any():
        return board, kept
    amounts, shared = waiting.amounts[those], waiting.shared[those]
    whole = board.after(pool[kept], start[kept], end[kept], amounts[kept], shared[kept])
    if whole.short():
        whole = board
        for at in np.flatnonzero(kept).tolist():
            shape, place = shapes[of[jobs[at]]], (int(pool[at]), float(start[at]), float(end[at]))
            kept[at] = whole.fits(shape, *place)
            if kept[at]:
                whole.take(shape, *place)
    places = np.arange(jobs.start, jobs.stop)[kept]
    dates.start[places], dates.end[places], dates.pool[places] = start[kept], end[kept], pool[kept]
    return whole, kept


def promised_ends(date: Floats, seconds: Floats, settings: Settings, now: float) -> Floats:
    """(n,): when the capacity of jobs is back that were promised `date` and run for `seconds`, both
    (n,), infinity for any that has no date. One that is late by no more than the slack is back when it
    would have been, or each such second would move who comes after it."""
    begun = np.where(now - date <= settings.slack_seconds, date, now)
    return settings.grid(now).all_up(begun + seconds + settings.slack_seconds)
