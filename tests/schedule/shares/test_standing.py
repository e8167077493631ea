import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shoal.schedule.shares.laws import Claim, Holding, Laws
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.standing import excess, idle_part, potential, standing
from shoal.schedule.shares.tree import tree
from shoal.schedule.shares.victims import choose
from tests.schedule.shares.worlds import column


def test_standing_is_the_largest_weighted_excess():
    rules = quotas(
        tree([-1, -1]), nominal=np.array([[2.0, 2.0], [0.0, 0.0]]), weight=np.array([2.0, 0.0])
    )
    ledger = Ledger(rules, np.array([[3.0, 6.0], [1.0, 0.0]]), np.array([10.0, 20.0]))
    assert excess(ledger, 0, 0) == pytest.approx(0.1)
    assert standing(ledger, 0) == pytest.approx(0.2)
    assert standing(ledger, 0, (4.0, -4.0)) == pytest.approx(0.5)
    assert standing(ledger, 1) > 1e6  # with weight 0 any excess counts more than others'
    assert potential(ledger)[0][1:3] == (0.2, 0.1)


def test_weights_count_against_each_other_alone():
    """A thousand times the same weights: a thousand times the weight 1 is no smaller excess."""
    used, capacity = column(3, 6), np.array([10.0])
    rules = [
        quotas(tree([-1, -1]), nominal=column(2, 2), weight=w * np.array([1.0, 2.0])) for w in (1, 1000)
    ]
    few, many = (Ledger(each, used, capacity) for each in rules)
    assert potential(few) == potential(many)


def test_the_part_of_an_ask_that_is_free():
    rules = quotas(tree([-1, -1]), nominal=column(0, 0))
    ledger = Ledger(rules, column(3, 6), np.array([10.0]))
    assert idle_part(ledger, (4.0,)) == [1.0]
    assert idle_part(ledger, (0.5,)) == [0.5]


@st.composite
def crowds(draw):
    """A tree whose leaves hold jobs, on a cluster that may have some room left."""
    count = draw(st.integers(2, 7))
    made = tree([draw(st.integers(-1, at - 1)) for at in range(count)])
    resources = draw(st.integers(1, 2))

    def row(values):
        return draw(st.lists(values, min_size=resources, max_size=resources))

    nominal = np.array([row(st.integers(0, 3)) for _ in range(count)], dtype=float)
    weight = np.array(
        draw(st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.0]), min_size=count, max_size=count))
    )
    leaves = np.flatnonzero(made.leaf).tolist()
    holdings, used = [], np.zeros((count, resources))
    for at in range(draw(st.integers(1, 9))):
        queue = draw(st.sampled_from(leaves))
        amounts = tuple(float(v) for v in row(st.integers(0, 4)))
        holdings.append(Holding(queue, amounts, draw(st.integers(0, 1)), job=at))
        used[queue] += amounts
    capacity = used.sum(axis=0) + row(st.integers(0, 2))
    ledger = Ledger(quotas(made, nominal=nominal, weight=weight), used, capacity)
    ask = tuple(float(v) for v in row(st.integers(0, 6)))
    return ledger, holdings, Claim(draw(st.sampled_from(leaves)), ask, draw(st.integers(0, 1)), job=99)


@settings(max_examples=150)
@given(crowds())
def test_every_exchange_lowers_the_potential(crowd):
    """Whatever is taken from another queue; inside one queue it does not rise, and priority decides."""
    ledger, holdings, claim = crowd
    taken = choose(ledger, claim, holdings, Laws())
    assume(taken)
    started = idle_part(ledger, claim.ask)
    ledger.charge(claim.queue, started)
    before = potential(ledger)
    ledger.charge(claim.queue, started, -1)
    for at in taken:
        ledger.charge(holdings[at].queue, holdings[at].amounts, -1)
    ledger.charge(claim.queue, claim.ask)
    after = potential(ledger)
    if any(holdings[at].queue != claim.queue for at in taken):
        assert after < before
    else:
        assert after <= before


@settings(max_examples=60, deadline=None)
@given(crowds(), st.randoms(use_true_random=False))
def test_jobs_that_never_end_come_to_rest(crowd, random):
    """No endless exchange: all jobs try again and again in any order, those evicted too."""
    ledger, jobs, claim = crowd
    jobs = [*jobs, Holding(claim.queue, claim.ask, claim.priority, job=99)]
    running, waiting = set(range(len(jobs) - 1)), {len(jobs) - 1}
    for _ in range(60):
        changed = False
        for at in random.sample(sorted(waiting), len(waiting)):
            job = jobs[at]
            if at not in waiting or not any(job.amounts):
                continue
            here = sorted(running)
            asked = Claim(job.queue, job.amounts, job.priority, job.job)
            taken = choose(ledger, asked, [jobs[other] for other in here], Laws())
            if taken is None:
                continue
            for other in taken:
                ledger.charge(jobs[here[other]].queue, jobs[here[other]].amounts, -1)
                running.remove(here[other])
                waiting.add(here[other])
            ledger.charge(job.queue, job.amounts)
            running.add(at)
            waiting.remove(at)
            changed = True
        if not changed:
            return
    raise AssertionError("jobs still take from each other")
