"""The numbered scenarios of backfill, starvation and limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shoal.schedule.backfill.plan import Verdict, plan
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
