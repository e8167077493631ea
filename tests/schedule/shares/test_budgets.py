import math

import pytest

from shoal.schedule.shares.budgets import Budget, Held, charged, exhausted_at, held, spent_at
from shoal.schedule.shares.tree import tree

HOUR = 3600.0
FAMILIES = tree([-1, -1, 0])
GPU, NODE = 0, 1


def budget(**changes):
    stated = {"name": "vision-q3", "queue": 0, "resource": GPU, "hours": 100.0, "spent_hours": 60.0}
    return Budget(**{**stated, **changes})


def why(budgets, queue=2, user="ann", ask=(4.0, 1.0), now=0.0, wall_seconds=math.inf):
    return held(FAMILIES, budgets, queue, user, ask, now, wall_seconds)


def test_a_job_is_held_by_the_budget_that_is_used_up():
    """scheduling-B8: held with a reason that names the budget."""
    assert why([budget()]) is None
    found = why([budget(name="all", hours=1e6), budget(spent_hours=100.0)])
    assert found == Held("vision-q3", 100.0, 100.0, 0.0, 0.0)


def test_hours_pass_while_jobs_run():
    running = budget(rate=8.0, at=HOUR)
    assert spent_at(running, HOUR) == 60
    assert spent_at(running, 3 * HOUR) == 76
    assert spent_at(running, 0.0) == 60
    assert exhausted_at(running) == pytest.approx(6 * HOUR)
    assert why([running], now=5.9 * HOUR) is None
    assert why([running], now=6 * HOUR) is not None


def test_a_budget_that_nobody_uses_lasts_and_a_spent_one_was_spent_before():
    assert exhausted_at(budget()) == math.inf
    assert exhausted_at(budget(spent_hours=100.0)) == -math.inf
    assert exhausted_at(budget(spent_hours=101.0, rate=8.0)) == -math.inf
    assert exhausted_at(budget(spent_hours=100.0 - 1e-9, rate=8.0)) == -math.inf  # rounding is no hour


def test_a_job_with_a_wall_time_is_held_if_it_could_not_be_paid_to_its_end():
    assert why([budget()], wall_seconds=10 * HOUR) is None
    assert why([budget()], wall_seconds=11 * HOUR) == Held("vision-q3", 100, 60, 0, 44)
    promised = budget(committed_hours=8.0, rate=4.0)
    assert why([promised], wall_seconds=9 * HOUR) == Held("vision-q3", 100, 60, 8, 36)
    # what running jobs use up is no longer to come
    assert why([promised], now=HOUR, wall_seconds=9 * HOUR) == Held("vision-q3", 100, 64, 4, 36)
    assert why([promised], now=HOUR, wall_seconds=8 * HOUR) is None


def test_it_counts_for_whom_it_is_meant():
    empty = {"spent_hours": 100.0}
    assert why([budget(queue=1, **empty)]) is None
    assert why([budget(user="bob", **empty)]) is None
    assert why([budget(user="ann", **empty)]) is not None
    assert why([budget(resource=NODE, **empty)], ask=(4.0, 0.0)) is None
    assert why([budget(resource=NODE, **empty)], ask=(0.0, 1.0)) is not None
    several = [budget(queue=1), budget(), budget(queue=2, user="bob"), budget(resource=NODE)]
    assert charged(FAMILIES, several, 2, "ann", (4.0, 1.0)) == [1, 3]
    assert charged(FAMILIES, several, 2, "bob", (4.0, 0.0)) == [1, 2]


def test_gpus_may_be_counted_in_thousandths():
    halves = budget(per_unit=1000.0, rate=500.0)
    assert spent_at(halves, 2 * HOUR) == 61
    assert why([halves], ask=(500.0, 0.0), wall_seconds=81 * HOUR).needed_hours == 40.5
