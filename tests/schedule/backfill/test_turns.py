"""Work of unknown length takes turns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.schedule.backfill.ageing import Ageing, order
from shoal.schedule.backfill.plan import Verdict, plan
from shoal.schedule.backfill.turns import give_way, planned_seconds, turn_ends
from tests.schedule.backfill.world import EXACT, MINUTE, Ask, Run, cluster, running, waiting

MIN_RUN = 30 * MINUTE
NOTICE = replace(EXACT, notice_seconds=2 * MINUTE, slack_seconds=MINUTE)


def decided(capacity, runs, asks, now, settings=NOTICE):
    """The plan and who is told to stop; `runs` with when they have started."""
    rows = [run for run, _ in runs]
    started, end = np.array([at for _, at in runs], float), np.array([run.end for run in rows], float)
    turns = turn_ends(started, end, MIN_RUN, settings, now)
    work = replace(running(capacity, *rows), end=turns.end)
    jobs = waiting(capacity, *asks)
    jobs = replace(jobs, seconds=planned_seconds(jobs.seconds, MIN_RUN))
    made = plan(capacity, work, jobs, settings, now)
    return made, give_way(made, capacity, work, jobs, turns.over, settings).tolist()


def test_three_jobs_of_unknown_length_take_turns():
    """scheduling-B7: minute by minute; who is told has the notice, then its capacity is back."""
    capacity = cluster((8,))
    since = dict.fromkeys(range(3), 0.0)
    runs: dict[int, float] = {}
    leaving: dict[int, float] = {}
    turns: list[tuple[int, float]] = []
    for now in np.arange(0.0, 200 * MINUTE, MINUTE).tolist():
        for name in [name for name, gone in leaving.items() if gone <= now]:
            del runs[name], leaving[name]
            since[name] = now
        waits = sorted(set(since) - set(runs))
        came = np.array([since[name] for name in waits])
        none = np.zeros(len(waits))
        line = order(none.astype(int), none, came, np.array(waits, int), Ageing(), now)
        queue = [waits[at] for at in line]
        rows = [
            (Run((8,), leaving[name]) if name in leaving else Run((8,)), at) for name, at in runs.items()
        ]
        made, told = decided(capacity, rows, [Ask((8,), key=name) for name in queue], now)
        for at in made.having(Verdict.START).tolist():
            runs[queue[at]] = now
            turns.append((queue[at], now))
        for row in told:
            leaving[list(runs)[row]] = now + NOTICE.notice_seconds
        assert len(runs) <= 1
    names = [name for name, _ in turns]
    assert names == ([0, 1, 2] * 3)[: len(names)] and len(names) >= 6
    lengths = np.diff([at for _, at in turns])
    assert (lengths >= MIN_RUN).all() and (lengths <= MIN_RUN + 3 * MINUTE).all()


def test_without_anybody_waiting_a_turn_goes_on():
    made, told = decided(cluster((8,)), [(Run((8,)), 0)], [], 100 * MINUTE)
    assert told == [] and made.pools[0].free[0, 0] == 0


def test_nobody_is_stopped_whose_turn_lasts():
    made, told = decided(cluster((8,)), [(Run((8,)), 0)], [Ask((8,), 60)], 10 * MINUTE)
    assert told == []
    assert made.start.tolist() == [MIN_RUN + NOTICE.slack_seconds]


def test_no_more_are_stopped_than_are_needed():
    """The first alone would not do, with the second it is not needed; what is known to end stays."""
    runs = [(Run((1,)), 0), (Run((4,)), 1), (Run((2,)), 2), (Run((1,), 300 * MINUTE), 0)]
    made, told = decided(cluster((8,)), runs, [Ask((4,), 60)], 100 * MINUTE)
    assert made.start.tolist() == [102 * MINUTE]
    assert told == [1]


def test_who_fits_beside_them_stops_nobody():
    made, told = decided(cluster((8,)), [(Run((4,)), 0)], [Ask((4,))], 100 * MINUTE)
    assert made.having(Verdict.START).tolist() == [0] and told == []
