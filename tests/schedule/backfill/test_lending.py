"""What elastic jobs may have until somebody's date."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from shoal.schedule.backfill.lending import lending
from shoal.schedule.backfill.plan import plan
from tests.schedule.backfill.strategies import worlds
from tests.schedule.backfill.world import EXACT, FOREVER, Ask, Run, cluster, running, waiting

NOTICE = replace(EXACT, notice_seconds=5)


def lent(capacity, runs, asks, options=NOTICE):
    work, jobs = running(capacity, *runs), waiting(capacity, *asks)
    made = plan(capacity, work, jobs, options, 0.0)
    return made, lending(made, capacity, options)


def test_what_is_reserved_may_be_used_until_the_notice_before_its_date():
    _, (loan,) = lent(cluster((8,)), [Run((6,), 100)], [Ask((7,), 50)])
    assert loan.until.tolist() == [95, FOREVER]
    assert loan.amounts.tolist() == [[2, 1]]
    assert loan.at(94).tolist() == [2]
    assert loan.at(95).tolist() == [1]


def test_what_elastic_jobs_hold_already_counts_as_lent():
    _, (loan,) = lent(cluster((8,), surplus=[(4,)]), [Run((2,))], [])
    assert loan.until.tolist() == [FOREVER]
    assert loan.amounts.tolist() == [[6]]


def test_surplus_is_asked_back_at_once_for_who_needs_it():
    made, (loan,) = lent(cluster((8,), surplus=[(4,)]), [Run((2,))], [Ask((5,), 60)])
    assert made.start.tolist() == [5]
    assert loan.until.tolist() == [0, FOREVER]
    assert loan.amounts.tolist() == [[6, 1]]


def test_what_is_kept_aside_without_a_date_is_lent_on_call():
    _, (loan,) = lent(cluster((8,)), [Run((6,))], [Ask((4,), 60, starved=True)])
    assert loan.amounts.tolist() == [[2]]
    assert loan.on_call.tolist() == [2]


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_an_elastic_job_that_borrows_all_of_it_delays_nobody(world):
    """The loan, as work that ends when it has to be back, leaves every date where it was."""
    sizes, shared, runs, asks = world
    capacity = cluster(*sizes, shared=shared)
    options = replace(EXACT, notice_seconds=1)
    made, loans = lent(capacity, runs, asks, options)
    held = []
    for pool, loan in enumerate(loans):
        beyond = [*loan.amounts.T[1:].tolist(), [0] * len(loan.amounts)]
        for until, now, then in zip(loan.until.tolist(), loan.amounts.T.tolist(), beyond, strict=True):
            back = tuple(one - other for one, other in zip(now, then, strict=True))
            if until + 1 < FOREVER:  # what is nobody's for ever stands in nobody's way either
                held.append(Run(back, until + 1, pool))
    again = plan(capacity, running(capacity, *runs, *held), waiting(capacity, *asks), options, 0.0)
    assert (again.start <= made.start).all()
