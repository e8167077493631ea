from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shoal.schedule.shares.laws import Claim, Holding, Laws
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.offers import Offers
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.standing import change, excess, idle_part, potential, standing
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


def test_whether_the_potential_falls_is_known_from_queues_that_change():
    for seed in range(100):
        random = Random(seed)
        count = random.randint(2, 6)
        rules = quotas(
            tree([random.randint(-1, at - 1) for at in range(count)]), nominal=np.ones((count, 2))
        )
        before, after = (
            Ledger(rules, column(*random.choices(range(4), k=count)) * [1, 2], np.array([9.0, 12.0]))
            for _ in range(2)
        )
        for ledger in (before, after):
            ledger.charge(random.randrange(count), (random.randint(0, 2), random.randint(0, 2)))
        low, high = potential(after), potential(before)
        assert change(before, after) == (low > high) - (low < high)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(crowds())
def test_every_exchange_lowers_the_potential(crowd):
    """Whatever is taken from another queue; inside one queue it does not rise, and priority decides."""
    ledger, holdings, claim = crowd
    taken = choose(ledger, claim, Offers(holdings), Laws())
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


class Crowd:
    """Jobs that never end: each plan starts what fits, in any order, or makes one exchange."""

    def __init__(self, ledger, jobs, random):
        self.ledger, self.jobs, self.random = ledger, jobs, random
        self.running, self.waiting = set(), set(range(len(jobs)))
        self.start(ledger, self.running, self.waiting)

    def start(self, ledger, running, waiting):
        for at in self.random.sample(sorted(waiting), len(waiting)):
            if ledger.refusal(self.jobs[at].queue, self.jobs[at].amounts) is None:
                ledger.charge(self.jobs[at].queue, self.jobs[at].amounts)
                running.add(at)
                waiting.remove(at)

    def exchange(self):
        """One, for whoever can make one; False when nobody can."""
        for at in self.random.sample(sorted(self.waiting), len(self.waiting)):
            here = sorted(self.running)
            ends = []

            def refill(ledger, gone, at=at, here=here, ends=ends):
                out = {here[other] for other in gone}
                running, waiting = self.running - out | {at}, self.waiting - {at} | out
                self.start(ledger, running, waiting)
                ends.append((ledger, running, waiting))

            job = self.jobs[at]
            claim = Claim(job.queue, job.amounts, job.priority, job.job)
            rivals = [
                Claim(self.jobs[each].queue, self.jobs[each].amounts, self.jobs[each].priority, each)
                for each in self.waiting
                if self.jobs[each].queue != job.queue
            ]
            offers = Offers(self.jobs[other] for other in here)
            if choose(self.ledger, claim, offers, Laws(), refill=refill, rivals=rivals):
                ((self.ledger, self.running, self.waiting),) = ends
                return True
        return False


def crowd(random):
    """On 10 of one resource, so that room is short."""
    made = tree(random.choice([[-1] * 3, [-1] * 4, [-1, -1, 0, 0, 1, 1]]))
    count = len(made.parent)
    rules = quotas(
        made,
        nominal=column(*(random.choice([0, 0, 0, 2]) for _ in range(count))),
        weight=np.array([random.choice([1.0, 1.0, 2.0, 0.0]) for _ in range(count)]),
    )
    leaves = np.flatnonzero(made.leaf).tolist()
    jobs = [
        Holding(random.choice(leaves), (float(random.randint(1, 9)),), random.choice([0, 0, 1]), job=at)
        for at in range(random.randint(4, 9))
    ]
    return Crowd(Ledger(rules, np.zeros((count, 1)), np.array([10.0])), jobs, random)


@pytest.mark.slow
def test_jobs_that_never_end_come_to_rest():
    """No endless exchange, whatever the order."""
    for seed in range(30):
        jobs = crowd(Random(seed))
        exchanges = 0
        while jobs.exchange():
            exchanges += 1
            assert exchanges < 40, f"seed {seed}: jobs still take from each other"


def test_what_starts_in_the_room_left_over_must_not_undo_the_exchange():
    """8 takes the place of 3 and 7; 3 not that of 8, for 7 would start beside it, and so on forever."""
    rules = quotas(tree([-1] * 2), nominal=column(0, 0), weight=np.array([2.0, 1.0]))
    eight, three, seven = Holding(0, (8.0,)), Holding(1, (3.0,)), Holding(1, (7.0,))
    full = Ledger(rules, column(0, 10), np.array([10.0]))
    assert choose(full, Claim(0, (8.0,)), Offers([seven, three]), Laws(), refill=lambda *_: None) == (
        0,
        1,
    )
    ledger = Ledger(rules, column(8, 0), np.array([10.0]))

    def seven_starts(after, gone):
        assert gone == (0,)
        assert after.refusal(1, seven.amounts) is None
        after.charge(1, seven.amounts)

    assert choose(ledger, Claim(1, three.amounts), Offers([eight]), Laws()) == (0,)
    assert choose(ledger, Claim(1, three.amounts), Offers([eight]), Laws(), refill=seven_starts) is None
