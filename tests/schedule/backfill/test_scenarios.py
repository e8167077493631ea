"""The numbered scenarios of backfill, starvation and limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shoal.schedule.backfill.ageing import Ageing, order, starved
from shoal.schedule.backfill.lending import lending
from shoal.schedule.backfill.plan import Verdict, plan
from tests.schedule.backfill.drive import Drive, Job
from tests.schedule.backfill.world import EXACT, FOREVER, MINUTE, Ask, Run, cluster, running, waiting


def decide(capacity, runs, asks, settings=EXACT, now=0.0):
    return plan(capacity, running(capacity, *runs), waiting(capacity, *asks), settings, now)


def test_a_short_job_starts_in_the_gap_before_one_that_needs_everything():
    """scheduling-B1."""
    asks = [Ask((1,), 10 * MINUTE), Ask((32,), 10 * MINUTE), Ask((31,), 5 * MINUTE)]
    made = decide(cluster((32,)), [], asks)
    assert made.verdict.tolist() == [Verdict.START, Verdict.RESERVED, Verdict.START]
    assert made.start.tolist() == [0, 10 * MINUTE, 0]


def test_one_licence_runs_one_job_and_who_wants_none_passes():
    """scheduling-B3, the first licence."""
    asks = [Ask((1,), 600, shared=(1,)) for _ in range(3)] + [Ask((1,), 600)]
    made = decide(cluster((10,), shared=(1,)), [], asks)
    assert made.having(Verdict.START).tolist() == [0, 3]
    assert made.start.tolist() == [0, 600, 1200, 0]


def test_six_licences_run_twelve_equal_jobs_in_two_waves():
    """scheduling-B3, the second licence: with 12 jobs that want one each for equally long, 1 to 6 start
    and 7 to 12 are all planned for when those end, so the first and the last of them share one date."""
    asks = [Ask((1,), 600, shared=(0, 1)) for _ in range(12)]
    made = decide(cluster((100,), shared=(1, 6)), [], asks)
    assert made.start.tolist() == [0] * 6 + [600] * 6
    assert made.start[6] == made.start[11] == 600
    assert made.evaluations == 2


@pytest.mark.parametrize("alike", [True, False])
def test_no_more_jobs_are_planned_than_the_depth_says(alike):
    """scheduling-B4."""
    asks = [Ask((2,), 60 if alike else 60 + at) for at in range(1000)]
    made = decide(cluster((2,)), [], asks, replace(EXACT, depth=500))
    assert made.verdict[499] == Verdict.RESERVED
    assert np.isfinite(made.start[:500]).all()
    assert (made.verdict[500:] == Verdict.BEYOND_DEPTH).all()
    assert np.isinf(made.start[500:]).all()


@pytest.mark.parametrize("gpus, verdict", [(8, Verdict.UNDATED), (9, Verdict.TOO_LARGE)])
def test_five_thousand_equal_jobs_that_cannot_start_cost_one_evaluation(gpus, verdict):
    """scheduling-B9: the GPUs are held for who knows how long, or there are not so many at all."""
    asks = [Ask((1, gpus), 600)] * 5000 + [Ask((1, 0), 600)]
    made = decide(
        cluster((100, 8)),
        [Run((1, 8), FOREVER)],
        [replace(ask, key=at) for at, ask in enumerate(asks)],
        replace(EXACT, depth=100),
    )
    assert (made.verdict[:5000] == verdict).all()
    assert made.verdict[5000] == Verdict.START
    assert made.evaluations == 2


def stream(lengths: float):
    """Two jobs of 30 that run, one of 50, and a 10 each minute. `lengths` is their wall time; all of
    them really run for ten minutes."""
    first = [Job(Ask((30,), lengths), 0, 10 * MINUTE) for _ in range(2)]
    large = Job(Ask((50,), lengths), MINUTE, 10 * MINUTE)
    small = [Job(Ask((10,), lengths), minute * MINUTE, 10 * MINUTE) for minute in range(1, 120)]
    return first, large, small


@pytest.mark.parametrize("lengths", [10 * MINUTE, FOREVER])
def test_a_large_job_starts_in_time_under_a_stream_of_small_ones(lengths):
    """scheduling-B5: with wall times it has a date at once; without, it starves for the threshold, and
    then starts when what ran at that time has ended. The small ones never stop coming."""
    rules = Ageing(threshold_seconds=20 * MINUTE)

    def arrange(queue, now):
        since = np.array([job.came for job in queue])
        none = np.zeros(len(queue), dtype=np.int64)
        starving = starved(since, rules, now).tolist()
        line = order(
            none, none.astype(float), since, np.array([job.ask.key for job in queue]), rules, now
        )
        for job, starves in zip(queue, starving, strict=True):
            job.ask = replace(job.ask, starved=starves)
        return [queue[at] for at in line]

    first, large, small = stream(lengths)
    drive, begun = Drive(cluster((100,)), EXACT, arrange), {}
    jobs = [*first, large, *small]
    for minute in range(120):
        now = minute * MINUTE
        drive.submit([job for job in jobs if job.came == now])
        drive.step(now)
        begun |= {job.ask.amounts[0]: job.started for job in drive.running if job.ask.amounts[0] == 50}
    bound = 10 * MINUTE if lengths < FOREVER else (20 + 10) * MINUTE
    assert begun[50] - large.came <= bound
    assert any(job.started < begun[50] for job in drive.done if job.ask.amounts[0] == 10)


def test_a_head_that_waits_for_more_than_can_be_freed_blocks_nobody():
    """scheduling-B6: others still start, and what is idle until its date is lent; the coordinator
    counts."""
    capacity = cluster((8, 4))
    head = Ask((8, 1), 60 * MINUTE)  # its coordinator needs a processor of the second kind
    fits, too_long = Ask((1, 0), 10 * MINUTE), Ask((1, 0), 50 * MINUTE)
    runs = [Run((5, 0), 20 * MINUTE), Run((0, 4), 30 * MINUTE)]
    work, jobs = running(capacity, *runs), waiting(capacity, head, too_long, fits)
    made = plan(capacity, work, jobs, EXACT, 0.0)
    assert made.start.tolist() == [30 * MINUTE, 90 * MINUTE, 0]
    (loan,) = lending(made, capacity, EXACT)
    assert loan.amounts[0].tolist() == [2, 0]
    assert loan.until[0] == 30 * MINUTE - EXACT.notice_seconds


def test_a_head_without_a_date_leaves_what_is_idle_to_who_can_give_it_back():
    """scheduling-B6, where nobody knows when the rest is free: nothing stands idle for it."""
    capacity = cluster((8,))
    jobs = waiting(capacity, Ask((8,), starved=True), Ask((2,)))
    made = plan(capacity, running(capacity, Run((5,))), jobs, EXACT, 0.0)
    assert made.verdict.tolist() == [Verdict.ASIDE, Verdict.UNDATED]
    (loan,) = lending(made, capacity, EXACT)
    assert loan.amounts.tolist() == [[3]] and loan.on_call.tolist() == [3]
