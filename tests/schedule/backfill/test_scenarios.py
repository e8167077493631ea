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


def wait_of_the_large_job(known: bool, threshold: float) -> float | None:
    """Of 100, two jobs hold 30, for 10 and 26 minutes; one of 50 comes, and a 10 each minute, for 10
    minutes. Whether their wall times are `known`, that is how long they really run. How long the one of
    50 waits, None if it has not started after two hours."""
    rules = Ageing(threshold_seconds=threshold)

    def arrange(queue, now):
        since = np.array([job.came for job in queue])
        key, none = np.array([job.ask.key for job in queue]), np.zeros(len(queue))
        for job, starves in zip(queue, starved(since, rules, now).tolist(), strict=True):
            job.ask = replace(job.ask, starved=starves)
        return [queue[at] for at in order(none.astype(int), none, since, key, rules, now).tolist()]

    def job(size, came, minutes):
        lasts = minutes * MINUTE
        return Job(Ask((size,), lasts if known else FOREVER), came * MINUTE, lasts)

    jobs = [job(30, 0, 10), job(30, 0, 26), job(50, 1, 10), *(job(10, at, 10) for at in range(1, 120))]
    drive = Drive(cluster((100,)), EXACT, arrange)
    for now in np.arange(0, 120 * MINUTE, MINUTE).tolist():
        drive.submit([job for job in jobs if job.came == now])
        drive.step(now)
    ran = [job for job in drive.done + drive.running if job.ask.amounts == (50,)]
    return ran[0].started - ran[0].came if ran else None


@pytest.mark.slow
def test_a_large_job_starts_in_time_under_a_stream_of_small_ones():
    """scheduling-B5: with wall times it has a date at once. Without it starves for the threshold, and
    starts at the latest when what ran at that time has ended; with no threshold it never would."""
    assert wait_of_the_large_job(known=True, threshold=FOREVER) == 9 * MINUTE
    waited = wait_of_the_large_job(known=False, threshold=40 * MINUTE)
    assert waited is not None and 40 * MINUTE <= waited <= 50 * MINUTE
    assert wait_of_the_large_job(known=False, threshold=FOREVER) is None


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
