"""Told to write a checkpoint, given time, then stopped."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.schedule.backfill.limits import NO_BUDGET, Spending, Stage, limits
from shoal.schedule.shares.budgets import Budget, exhausted_at

NEVER = math.nan


def stages(now, told=NEVER, wall=100.0, left=math.inf, rate=1.0):
    """Of one job that started at 0 with a grace of 30, charged to the second of two budgets of seconds
    of a resource, of which so many are `left` now and `rate` are in use."""
    budgets = [
        Budget("", 0, 0, have / 3600, 0.0, now, used) for have, used in ((5.0, 1.0), (left, rate))
    ]
    until = np.array([exhausted_at(budget) for budget in budgets])
    spending = Spending(np.array([[False, True]]), until)
    one = np.array([0.0]), np.array([wall]), np.array([30.0]), np.array([told])
    found = limits(*one, spending, now)
    return Stage(int(found.stage[0])), float(found.due[0]), float(found.end[0]), int(found.budget[0])


def test_at_its_wall_time_a_job_is_told_then_given_time_then_stopped():
    """scheduling-B8, the limit."""
    assert stages(99) == (Stage.RUN, 100, 130, NO_BUDGET)
    assert stages(100) == (Stage.CHECKPOINT, 100, 130, NO_BUDGET)
    assert stages(101, told=100) == (Stage.GRACE, 130, 130, NO_BUDGET)
    assert stages(130, told=100) == (Stage.STOP, 130, 130, NO_BUDGET)


def test_a_job_that_is_told_late_has_its_grace_all_the_same():
    assert stages(150) == (Stage.CHECKPOINT, 150, 180, NO_BUDGET)
    assert stages(179, told=150)[0] == Stage.GRACE


def test_a_limit_that_is_raised_takes_the_signal_back():
    assert stages(120, told=100, wall=500.0) == (Stage.RUN, 500, 530, NO_BUDGET)


def test_a_spent_budget_stops_running_work_as_a_wall_time_does():
    """scheduling-B8, the budget: what runs writes a checkpoint first (what waits: `shares.budgets`)."""
    assert stages(10, left=40, rate=2) == (Stage.RUN, 30, 60, 1)
    assert stages(30, left=0) == (Stage.CHECKPOINT, 30, 60, 1)
    assert stages(59, left=-29, told=30) == (Stage.GRACE, 60, 60, 1)
    assert stages(60, left=-30, told=30) == (Stage.STOP, 60, 60, 1)


def test_without_budgets_the_wall_time_counts():
    none = Spending(np.zeros((1, 0), np.bool_), np.zeros(0))
    one = np.array([0.0]), np.array([math.inf]), np.array([30.0]), np.array([NEVER])
    found = limits(*one, none, 1e9)
    assert found.stage.tolist() == [Stage.RUN]
    assert found.due.tolist() == [math.inf]
    with pytest.raises(ValueError, match="wall time"):
        limits(one[0], np.array([0.0]), one[2], one[3], none, 0.0)
