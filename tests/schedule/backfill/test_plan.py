"""The plan against a slow one that is obviously right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.backfill.asks import Settings
from shoal.schedule.backfill.plan import Verdict, plan
from tests.schedule.backfill import model
from tests.schedule.backfill.strategies import SPAN, worlds
from tests.schedule.backfill.world import EXACT, FOREVER, Ask, Run, cluster, running, waiting

QUICK = settings(max_examples=60, deadline=None)


def decide(world, options=EXACT, now=0.0):
    sizes, shared, runs, asks = world
    capacity = cluster(*sizes, shared=shared)
    return plan(capacity, running(capacity, *runs), waiting(capacity, *asks), options, now)


def in_minutes(world):
    sizes, shared, runs, _ = world
    return model.occupied(sizes, shared, runs, SPAN)


@QUICK
@given(worlds())
@pytest.mark.slow
def test_each_job_has_the_earliest_start_that_moves_nobody_before_it(world):
    made = decide(world)
    expected = model.conservative(in_minutes(world), world[3])
    assert list(zip(made.start.tolist(), made.pool.tolist(), strict=True)) == expected


@pytest.mark.slow
@QUICK
@given(worlds())
def test_at_no_moment_is_more_planned_than_there_is(world):
    made, minutes = decide(world), in_minutes(world)
    for ask, start, pool in zip(world[3], made.start.tolist(), made.pool.tolist(), strict=True):
        if start < FOREVER:
            minutes.take(ask.amounts, ask.shared, pool, int(start), start + ask.seconds)
    assert minutes.feasible()


@pytest.mark.slow
@QUICK
@given(worlds(pools=1))
def test_nobody_starts_later_than_strictly_in_order(world):
    made = decide(world)
    fifo = [start for start, _ in model.strict_fifo(in_minutes(world), world[3])]
    assert all(ours <= theirs for ours, theirs in zip(made.start.tolist(), fifo, strict=True))


@QUICK
@given(worlds(), st.integers(0, 5))
@pytest.mark.slow
def test_one_more_job_behind_delays_nobody(world, drop):
    sizes, shared, runs, asks = world
    fewer = decide((sizes, shared, runs, asks[: max(1, len(asks) - drop)]))
    assert decide(world).start[: len(fewer.start)].tolist() == fewer.start.tolist()


@QUICK
@given(worlds(), st.integers(0, 3), st.sampled_from([0.0, 5.0, 7.0]))
@pytest.mark.slow
def test_rounding_promises_no_more_than_there_is_and_no_date_too_early(world, slack, now):
    """On the grid a plan is still possible to the second, and jobs start no earlier than they could."""
    sizes, shared, runs, asks = world
    coarse = Settings(resolution_seconds=3, slack_seconds=slack, overdue_seconds=1)
    later = [replace(run, end=run.end + now) for run in runs]
    made = decide((sizes, shared, later, asks), coarse, now)
    minutes = in_minutes(world)
    for ask, start, pool in zip(asks, (made.start - now).tolist(), made.pool.tolist(), strict=True):
        if start < FOREVER:
            minutes.take(ask.amounts, ask.shared, pool, int(start), start + ask.seconds + slack)
    assert minutes.feasible()
    assert all(start == now or start % 3 == 0 for start in made.start.tolist() if start < FOREVER)


@QUICK
@given(worlds())
@pytest.mark.slow
def test_equal_input_gives_equal_bytes(world):
    one, other = decide(world), decide(world)
    for field in ("verdict", "start", "end", "pool"):
        assert getattr(one, field).tobytes() == getattr(other, field).tobytes()


def test_equal_neighbours_share_a_search_and_others_begin_where_it_ended():
    asks = [Ask((1,), 100)] * 50 + [Ask((1,), 200)] + [Ask((1,), 100)] * 50
    made = decide((((10,),), (), [], [replace(ask, key=at) for at, ask in enumerate(asks)]))
    assert made.start.tolist()[:51] == [100.0 * (at // 10) for at in range(51)]
    assert made.evaluations == 5 + 1 + 6


def test_the_first_pool_of_equals_is_taken():
    made = decide((((2,), (4,)), (), [Run((1,), 50, 0)], [Ask((2,), 10), Ask((2,), 10), Ask((2,), 10)]))
    assert made.pool.tolist() == [1, 1, 1]
    assert made.start.tolist() == [0, 0, 10]


def test_work_that_is_overdue_is_expected_to_end_soon():
    options = replace(EXACT, overdue_seconds=30)
    made = decide((((2,),), (), [Run((2,), 90)], [Ask((1,), 10)]), options, now=100.0)
    assert made.start.tolist() == [130]


def test_dates_beyond_the_horizon_are_planned_and_not_promised():
    asks = [Ask((1,), 100), Ask((1,), 100), Ask((1,), 100)]
    made = decide((((1,),), (), [], asks), replace(EXACT, horizon_seconds=150))
    assert made.start.tolist() == [0, 100, 200]
    assert made.verdict.tolist() == [Verdict.START, Verdict.RESERVED, Verdict.BEYOND_HORIZON]


def test_a_job_that_starved_without_a_date_has_its_capacity_kept_as_it_comes_free():
    runs = [Run((2,)), Run((1,), 50), Run((1,), 90)]
    starving = Ask((3,), 100, starved=True)
    behind = [Ask((1,), 10), Ask((2,), 10)]
    patient = decide((((4,),), (), runs, [starving, *behind]))
    assert patient.verdict.tolist() == [Verdict.ASIDE, Verdict.UNDATED, Verdict.UNDATED]
    assert patient.aside.tolist() == [[3]]
    eager = decide((((4,),), (), runs, [replace(starving, starved=False), *behind]))
    assert eager.start.tolist() == [FOREVER, 50, 90]


def test_no_more_is_kept_aside_than_there_is():
    asks = [Ask((3,), 10, starved=True), Ask((3,), 10, starved=True), Ask((1,), 10, starved=True)]
    made = decide((((4,),), (), [Run((4,))], asks))
    assert made.verdict.tolist() == [Verdict.ASIDE, Verdict.UNDATED, Verdict.ASIDE]


def test_surplus_of_elastic_jobs_is_planned_with_once_it_can_be_back():
    capacity = cluster((8,), surplus=[(4,)])
    options = replace(EXACT, notice_seconds=30)
    made = plan(
        capacity, running(capacity, Run((2,))), waiting(capacity, Ask((2,)), Ask((4,))), options, 0.0
    )
    assert made.start.tolist() == [0, 30]


def test_no_jobs_make_an_empty_plan():
    made = decide((((1,),), (), [], []))
    assert len(made.start) == 0
    assert made.pools[0].free.tolist() == [[1]]


@pytest.mark.parametrize("pool", [1, -1])
def test_parts_that_do_not_go_together_are_refused(pool):
    capacity = cluster((1,))
    with pytest.raises(ValueError, match="1 pools"):
        plan(capacity, running(capacity, Run((1,), 5, pool)), waiting(capacity), EXACT, 0.0)
    other = cluster((1, 1))
    with pytest.raises(ValueError, match="2 resources"):
        plan(other, running(capacity), waiting(capacity), EXACT, 0.0)
    with pytest.raises(ValueError, match="1 shared"):
        plan(cluster((1,), shared=(1,)), running(capacity), waiting(capacity), EXACT, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": np.array([0.0, 1.0])},
        {"seconds": np.array([np.nan, 1.0])},
        {"promised": np.array([np.nan, 1.0])},
        {"promised": np.array([5.0, np.inf])},
        {"rank": np.array([0, 1])},
        {"key": np.array([1, 1])},
        {"amounts": np.array([[-1], [1]])},
        {"starved": np.array([True])},
    ],
)
def test_jobs_that_are_none_are_refused(wrong):
    jobs = waiting(cluster((1,)), Ask((1,), 1), Ask((1,), 1))
    with pytest.raises(ValueError):
        replace(jobs, **wrong)
