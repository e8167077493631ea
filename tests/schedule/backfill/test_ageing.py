"""The order of those that wait."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.schedule.backfill.ageing import Ageing, order, scores, starved

RULES = Ageing(weight=2.0, full_seconds=100, threshold_seconds=50)


def arranged(rank, priority, since, now=100.0, rules=RULES):
    key = np.arange(len(rank))
    return order(np.array(rank), np.array(priority), np.array(since), key, rules, now).tolist()


def test_priority_grows_with_age_up_to_its_weight():
    since = np.array([100.0, 75.0, 0.0, -500.0, 130.0])
    assert scores(np.ones(5), since, RULES, 100.0).tolist() == [1, 1.5, 3, 3, 1]


def test_a_higher_class_then_who_starves_longest_then_the_score():
    ranks = [0, 0, 0, 0, 1]
    priority = [9.0, 0.0, 0.0, 8.0, 0.0]
    since = [90.0, 50.0, 20.0, 60.0, 99.0]
    assert starved(np.array(since), RULES, 100.0).tolist() == [False, True, True, False, False]
    assert arranged(ranks, priority, since) == [4, 2, 1, 0, 3]


def test_equals_keep_the_order_of_their_keys():
    assert arranged([0] * 3, [1.0] * 3, [90.0] * 3) == [0, 1, 2]


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 100)), min_size=2, max_size=8), st.floats(0, 60)
)
def test_nobody_of_its_class_who_comes_later_ever_passes_one_that_starves(jobs, more):
    """So a wait is bounded: those before it can only become fewer."""
    priority, since = zip(*jobs, strict=True)
    now = 120.0
    before = arranged([0] * len(jobs), list(priority), list(since), now)
    late = [*since, now + more]
    after = arranged([0] * len(late), [*priority, 1e6], late, now + more)
    starving = {at for at, came in enumerate(since) if now - came >= 50}
    for job in starving:
        ahead = set(after[: after.index(job)])
        assert ahead <= set(before[: before.index(job)])


@pytest.mark.parametrize(
    "wrong", [{"weight": -1}, {"full_seconds": 0}, {"threshold_seconds": float("nan")}]
)
def test_rules_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError):
        Ageing(**wrong)
