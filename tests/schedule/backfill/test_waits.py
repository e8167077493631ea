"""What a job waits for, and who has it."""

from __future__ import annotations

from hypothesis import given, settings

from shoal.schedule.backfill.plan import Verdict, plan
from shoal.schedule.backfill.waits import waits_for
from tests.schedule.backfill.strategies import worlds
from tests.schedule.backfill.world import EXACT, FOREVER, Ask, Run, cluster, running, waiting


def explained(capacity, runs, asks, job):
    work, jobs = running(capacity, *runs), waiting(capacity, *asks)
    made = plan(capacity, work, jobs, EXACT, 0.0)
    return waits_for(job, made, capacity, work, jobs, EXACT)


def shown(wait):
    return (wait.pool, wait.resource, wait.need, wait.free, wait.running.tolist(), wait.ahead.tolist())


def test_a_date_is_when_those_end_who_hold_what_is_scarcest():
    runs = [Run((2, 1), 50), Run((2, 0), 90), Run((0, 1), 90)]
    asks = [Ask((4, 1), 10), Ask((4, 1), 10)]
    assert shown(explained(cluster((4, 2)), runs, asks, 0)) == (0, 0, 4, 2, [1], [])
    assert shown(explained(cluster((4, 2)), runs, asks, 1)) == (0, 0, 4, 0, [], [0])


def test_without_a_date_it_is_those_whose_end_nobody_knows():
    runs = [Run((3,)), Run((1,), 40)]
    asks = [Ask((2,), 10, starved=True), Ask((1,), 10)]
    assert shown(explained(cluster((4,)), runs, asks, 0)) == (0, 0, 2, 1, [0], [])
    assert shown(explained(cluster((4,)), runs, asks, 1)) == (0, 0, 1, 0, [0], [0])


def test_a_licence_is_named_behind_the_resources():
    asks = [Ask((1,), 60, shared=(1,)), Ask((1,), 60, shared=(1,))]
    assert shown(explained(cluster((9,), shared=(1,)), [], asks, 1)) == (0, 1, 1, 0, [], [0])


def test_what_is_too_large_is_held_against_what_there_is():
    asks = [Ask((6, 3), 10), Ask((1, 1), 10, pools=())]
    assert shown(explained(cluster((4, 2), (5, 1)), [], asks, 0)) == (0, 0, 6, 4, [], [])
    assert shown(explained(cluster((4, 2), (5, 1)), [], asks, 1))[0] == -1


def test_who_starts_waits_for_nothing():
    assert explained(cluster((4,)), [], [Ask((1,), 10)], 0) is None


@settings(max_examples=40, deadline=None)
@given(worlds(pools=1))
def test_whoever_has_a_date_lacks_something_until_then_and_somebody_has_it(world):
    sizes, shared, runs, asks = world
    capacity = cluster(*sizes, shared=shared)
    work, jobs = running(capacity, *runs), waiting(capacity, *asks)
    made = plan(capacity, work, jobs, EXACT, 0.0)
    for job in made.having(Verdict.RESERVED, Verdict.UNDATED).tolist():
        wait = waits_for(job, made, capacity, work, jobs, EXACT)
        assert wait.free < wait.need
        assert len(wait.running) + len(wait.ahead) > 0
        assert all(made.end[ahead] == made.start[job] for ahead in wait.ahead.tolist())
        assert all(work.end[row] in (made.start[job], FOREVER) for row in wait.running.tolist())
