"""Dates are kept: no event but a higher class or a loss of capacity moves one later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.backfill.asks import Capacity, Settings
from shoal.schedule.backfill.plan import plan
from shoal.schedule.backfill.promises import Rule, moves, promises_of
from tests.schedule.backfill.drive import Drive, Job
from tests.schedule.backfill.world import EXACT, Ask, Run, cluster, promised, running, waiting

ROUNDED = Settings(resolution_seconds=3, slack_seconds=1, notice_seconds=1, overdue_seconds=2)


@st.composite
def histories(draw, ranks: int = 1):
    """When jobs come, what they ask for, and how much of their wall time they really run."""
    jobs = []
    for _ in range(draw(st.integers(2, 12))):
        seconds = draw(st.integers(1, 9))
        ask = Ask((draw(st.integers(1, 4)),), seconds, draw(st.integers(0, ranks - 1)))
        jobs.append(Job(ask, draw(st.integers(0, 10)), draw(st.integers(1, seconds))))
    return jobs


def play(jobs, drive, until=120, step=1.0, mishap=lambda drive, now: None):
    """Every decision's moves, and the dates before and after it."""
    told = []
    now = 0.0
    while now < until:
        drive.submit([job for job in jobs if now - step < job.came <= now])
        mishap(drive, now)
        before = drive.dates()
        told.append((now, drive.step(now), before, drive.dates()))
        if now > 10 and not drive.queue and not drive.running:
            break
        now += step
    return told


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(histories(), st.randoms(use_true_random=False), st.sampled_from([EXACT, ROUNDED]))
def test_whatever_comes_or_ends_early_no_date_of_the_only_class_moves_later(jobs, random, options):
    """Also when the order of those that wait changes all the time."""
    drive = Drive(cluster((6,)), options, arrange=lambda queue, _: random.sample(queue, len(queue)))
    for now, moved, before, after in play(jobs, drive):
        assert not moved
        assert all(date <= max(before[key], now) for key, date in after.items() if key in before)
        assert all(date > now for date in after.values())
    assert not drive.queue, "everybody has had a turn"
    assert len(drive.done) == len(jobs)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(histories(ranks=3), st.sampled_from([EXACT, ROUNDED]))
def test_of_several_classes_only_a_higher_one_moves_a_date(jobs, options):
    drive = Drive(cluster((5,)), options)
    for _, moved, _, _ in play(jobs, drive):
        assert all(move.rule == Rule.HIGHER_CLASS and move.higher for move in moved)
    assert not drive.queue


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    histories(ranks=2),
    st.integers(1, 12),
    st.integers(1, 3),
    st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
def test_losses_and_overruns_are_named_and_nothing_else_moves(jobs, when, lost, overruns):
    """Nodes go at some moment, and some jobs stay longer than they may."""
    jobs = [replace(job, lasts=job.lasts + more) for job, more in zip(jobs, overruns, strict=False)]

    def mishap(drive, now):
        if now == when:
            drive.capacity = replace(drive.capacity, pools=drive.capacity.pools - lost)

    drive = Drive(cluster((7,)))
    rules = {move.rule for _, moved, _, _ in play(jobs, drive, mishap=mishap) for move in moved}
    assert rules <= {Rule.HIGHER_CLASS, Rule.CAPACITY_LOST}
    assert not drive.queue


def judged(before: list[Ask], after: list[Ask], runs=(), capacity: Capacity | None = None, late=False):
    """The moves from a plan of four GPUs to one of other jobs, work or capacity."""
    first = cluster((4,))
    made = plan(first, running(first, Run((4,), 10)), waiting(first, *before), EXACT, 0.0)
    dated = {ask.key: ask for ask in promised(before, made)}
    asks = [
        replace(ask, promised=dated[ask.key].promised, promised_pool=0)
        if ask.key in dated and ask.seconds <= dated[ask.key].seconds
        else ask
        for ask in after
    ]
    now = first if capacity is None else capacity
    work, jobs = running(now, *(runs or [Run((4,), 10)])), waiting(now, *asks)
    again = plan(now, work, jobs, EXACT, 1.0)
    held = np.full(len(work.pool), late)
    promises = promises_of(made, waiting(first, *before), first)
    return again, moves(promises, again, now, work, jobs, EXACT, held)


MINE = Ask((3,), 10, key=7)


def test_a_higher_class_that_takes_the_room_is_named():
    _, moved = judged([MINE], [Ask((2,), 5, rank=1, key=8), MINE])
    assert [(move.rule, move.promised, move.start, move.higher) for move in moved] == [
        (Rule.HIGHER_CLASS, 10, 15, (0,))
    ]


def test_a_higher_class_beside_which_there_is_room_moves_nobody():
    again, moved = judged([MINE], [Ask((1,), 50, rank=1, key=8), MINE])
    assert again.start.tolist() == [10, 10] and not moved


def test_a_node_that_is_lost_accounts_for_a_move():
    _, moved = judged([MINE, Ask((1,), 5, key=3)], [MINE, Ask((1,), 5, key=3)], capacity=cluster((3,)))
    assert [(move.job, move.rule) for move in moved] == [(1, Rule.CAPACITY_LOST)]


@pytest.mark.parametrize("late, rule", [(True, Rule.CAPACITY_LOST), (False, Rule.VIOLATION)])
def test_work_that_stays_longer_is_a_loss_only_if_it_was_to_go(late, rule):
    """Had the plan let something start that runs beyond the date, that would be a violation."""
    _, moved = judged([MINE], [MINE], runs=[Run((4,), 12)], late=late)
    assert [(move.rule, move.start) for move in moved] == [(rule, 12)]


def test_a_job_that_asks_for_more_has_no_promise_for_it():
    _, moved = judged([MINE, Ask((4,), 5, key=3)], [Ask((4,), 5, key=3), replace(MINE, seconds=30)])
    assert [(move.rule, move.start) for move in moved] == [(Rule.ASKS_MORE, 15)]


def test_a_date_given_up_without_need_is_a_violation():
    """A plan that has forgotten what was promised lets somebody pass."""
    first = cluster((4,))
    work = running(first, Run((4,), 10))
    made = plan(first, work, waiting(first, MINE), EXACT, 0.0)
    promises = promises_of(made, waiting(first, MINE), first)
    jobs = waiting(first, Ask((4,), 5, key=3), MINE)
    again = plan(first, work, jobs, EXACT, 1.0)
    found = moves(promises, again, first, work, jobs, EXACT, np.zeros(1, dtype=np.bool_))
    assert [(move.rule, move.promised, move.start) for move in found] == [(Rule.VIOLATION, 10, 15)]
