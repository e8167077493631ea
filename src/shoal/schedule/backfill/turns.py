"""Work of unknown length takes turns: after its minimum run it may be stopped, but only for somebody.

Nobody knows when a job without a wall time ends, so nobody behind it can be told a date, and three that
each want everything would run one after the other, each for as long as it likes. With a minimum run they
share the time: a turn lasts at least so long, which makes each start worth its cost, and then the job
gives way to who is planned for what it holds, and waits again behind all who wait already. That is round
robin, ordered by the time since which it waits again.

In a plan such a job, waiting or running, is as long as its turn (`planned_seconds`, `turn_ends`). When
somebody's date is no farther off than the notice, `give_way` says who is stopped: nobody whose turn
lasts beyond that, and nobody who need not be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Capacity, Settings, Waiting, Work
from shoal.schedule.backfill.board import expected_ends
from shoal.schedule.backfill.plan import Plan

__all__ = ["Turns", "give_way", "planned_seconds", "turn_ends"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Turns:
    """When running work of unknown length may be stopped for others."""

    end: Floats
    """(n,): the end to plan with: its own where it is known, else that of its turn, or as soon as it can
    be stopped."""
    over: Flags
    """(n,): its turn will be over when the notice is, so it may be told."""


def planned_seconds(seconds: Floats, min_run_seconds: float) -> Floats:
    """(m,): of waiting jobs, with a turn in place of an unknown length."""
    return np.where(np.isinf(seconds), min_run_seconds, seconds)


def turn_ends(
    started: Floats, end: Floats, min_run_seconds: float, settings: Settings, now: float
) -> Turns:
    """Of running work that has `started` and ends at `end`, infinity where unknown; both (n,). The slack
    is for who decides: it can be late by so much without a promised date being missed."""
    endless, turn = np.isinf(end), started + min_run_seconds
    told = now + settings.notice_seconds
    stopped = np.maximum(turn + settings.slack_seconds, told)
    return Turns(np.where(endless, stopped, end), endless & (turn <= told))


def give_way(
    plan: Plan, capacity: Capacity, work: Work, waiting: Waiting, over: Flags, settings: Settings
) -> Ints:
    """The rows of `work` to be told to stop now, ascending, so that those start whose date in the plan,
    made from all of this, is no farther off than the notice.

    Of those whose turn is `over` (n,), in the order of their rows, each that has something of what is
    lacking; then, last to first, who turns out not to be needed stays.
    """
    grid = settings.grid(plan.now)
    soon = grid.up(plan.now + settings.notice_seconds + settings.slack_seconds)
    there = over | (expected_ends(work, settings, plan.now) > soon)
    due = (plan.start <= soon) & (plan.end > soon)
    pools = len(capacity.pools)
    asked = _in_columns(plan.pool[due], waiting.amounts[due], waiting.shared[due], pools)
    taken = _in_columns(work.pool, work.amounts, work.shared, pools)
    have = np.concatenate((capacity.pools.ravel(), capacity.shared))
    wanted = asked.sum(axis=0)
    lacking = np.where(wanted > 0, wanted + taken[there].sum(axis=0) - have, 0)
    told: list[int] = []
    for row in np.flatnonzero(over).tolist():
        if ((lacking > 0) & (taken[row] > 0)).any():
            lacking -= taken[row]
            told.append(row)
    for row in reversed(told.copy()):
        if (lacking + taken[row] <= 0).all():
            lacking += taken[row]
            told.remove(row)
    return np.array(told, dtype=np.int64)


def _in_columns(pool: Ints, amounts: Ints, shared: Ints, pools: int) -> Ints:
    """(n, c * r + s): what each has of each pool, and of what is shared."""
    columns = np.zeros((len(pool), pools, amounts.shape[1]), dtype=np.int64)
    columns[np.arange(len(pool)), pool] = amounts
    return np.concatenate((columns.reshape(len(pool), pools * amounts.shape[1]), shared), axis=1)
