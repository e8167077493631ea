"""The worked example of docs/design/backfill.md."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.schedule.backfill.lending import lending
from shoal.schedule.backfill.plan import Verdict, plan
from shoal.schedule.backfill.promises import Rule, moves, promises_of
from shoal.schedule.backfill.waits import waits_for
from tests.schedule.backfill.world import EXACT, MINUTE, Ask, Run, cluster, promised, running, waiting

TEN = cluster((10,))
A, B, C, D, E = range(5)
ASKS = [
    Ask((8,), 120 * MINUTE, key=A),
    Ask((2,), 45 * MINUTE, key=B),
    Ask((2,), 90 * MINUTE, key=C),
    Ask((4,), 30 * MINUTE, key=D),
    Ask((1,), key=E),
    Ask((11,), 1 * MINUTE, key=5),
]
SIX = Run((6,), 60 * MINUTE)
STARTED = [Run((2,), 45 * MINUTE), Run((2,), 90 * MINUTE)]


def first():
    work, jobs = running(TEN, SIX), waiting(TEN, *ASKS)
    return work, jobs, plan(TEN, work, jobs, EXACT, 0.0)


def later(runs, asks, minute):
    work, jobs = running(TEN, *runs), waiting(TEN, *asks)
    return work, jobs, plan(TEN, work, jobs, EXACT, minute * MINUTE)


def minutes(made):
    return (made.start / MINUTE).tolist()


def still_waiting():
    asks = promised(ASKS, first()[2])
    return [asks[A], asks[D], asks[E]]


def test_who_starts_and_who_is_told_a_date():
    work, jobs, made = first()
    assert minutes(made)[:5] == [60, 0, 0, 180, 90]
    assert [Verdict(each).name for each in made.verdict] == [
        *("RESERVED", "START", "START", "RESERVED", "RESERVED", "TOO_LARGE")
    ]
    wait = waits_for(D, made, TEN, work, jobs, EXACT)
    assert wait is not None
    assert (wait.need, wait.free, wait.running.tolist(), wait.ahead.tolist()) == (4, 2, [], [A])


def test_what_ends_early_brings_dates_forward():
    assert minutes(later(STARTED, still_waiting(), 40)[2]) == [45, 165, 90]


def test_what_is_idle_before_a_date_is_lent_until_then():
    _, _, made = later([SIX, STARTED[1]], still_waiting(), 45)
    assert minutes(made) == [60, 180, 90]
    (loan,) = lending(made, TEN, EXACT)
    assert loan.amounts.tolist() == [[2, 0]]
    assert loan.until[0] == 60 * MINUTE - EXACT.notice_seconds


def test_only_a_higher_class_moves_a_date_later():
    asks = [Ask((10,), 10 * MINUTE, rank=1, key=9), *still_waiting()]
    work, jobs, made = later([SIX, *STARTED], asks, 10)
    assert minutes(made) == [90, 210, 60, 100]
    before = promises_of(first()[2], waiting(TEN, *ASKS), TEN)
    found = moves(before, made, TEN, work, jobs, EXACT, np.zeros(3, dtype=np.bool_))
    assert [(move.job, move.rule) for move in found] == [
        (1, Rule.HIGHER_CLASS),
        (3, Rule.HIGHER_CLASS),
    ]
    # D's promise was laid before A looked for its place, and then D moved forward: so does A, next time
    again = promised(asks, made)
    assert minutes(later([SIX, *STARTED], again, 10)[2]) == [90, 100, 60, 100]
    assert minutes(later([SIX, *STARTED], [replace(asks[0], rank=0), *asks[1:]], 10)[2])[1] == 60
