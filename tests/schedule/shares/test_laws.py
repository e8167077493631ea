import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.shares.laws import Claim, Holding, Laws, reclaim_refusal
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.tree import tree
from tests.schedule.shares.worlds import column

STRICT = Laws(beyond_nominal=False, any_priority=False)


def ask(nominal, used, claim, holding, laws=None, parents=None, capacity=10.0, **stated):
    rules = quotas(tree(parents or [-1] * len(nominal)), nominal=column(*nominal), **stated)
    ledger = Ledger(rules, column(*used), np.array([capacity]))
    return reclaim_refusal(ledger, claim, holding, laws or Laws())


def test_within_a_queue_only_lower_priority_goes():
    """scheduling-E15: never inside one application; among jobs of a queue by priority alone."""
    holding = Holding(0, (1.0,), priority=3, job=7)
    assert ask((5,), (5,), Claim(0, (1.0,), priority=9, job=7), holding).rule == "SameJob"
    assert ask((5,), (5,), Claim(0, (1.0,), priority=3, job=8), holding).rule == "PriorityNotLower"
    assert ask((5,), (5,), Claim(0, (1.0,), priority=4, job=8), holding) is None


def test_between_queues_priority_counts_if_the_policy_says_so():
    """scheduling-E15: victim priority lower or equal."""
    high = Holding(1, (1.0,), priority=1)
    assert ask((5, 5), (0, 10), Claim(0, (1.0,)), high) is None
    refused = ask((5, 5), (0, 10), Claim(0, (1.0,)), high, STRICT)
    assert (refused.rule, refused.bound, refused.used) == ("PriorityHigher", 0, 1)
    assert ask((5, 5), (0, 10), Claim(0, (1.0,), priority=1), high, STRICT) is None


def test_a_claimant_beyond_its_own_takes_back_nothing_under_the_strict_laws():
    """scheduling-E15: the preemptor's queue is under its share, the victim's is over its."""
    holding = Holding(1, (1.0,))
    refused = ask((3, 3), (3, 7), Claim(0, (1.0,)), holding, STRICT)
    assert (refused.rule, refused.bound, refused.used, refused.asked) == ("OverNominal", 3, 3, 1)
    assert ask((3, 3), (3, 7), Claim(0, (1.0,)), holding) is None
    assert ask((3, 3), (2, 3), Claim(0, (1.0,)), holding, STRICT).rule == "WithinNominal"


def test_fences_are_one_way():
    """scheduling-E15: from inside nobody reaches out; from outside one reaches in."""
    parents, nominal, used = [-1, -1, 0, 1], (4, 4, 4, 4), (0, 0, 1, 9)
    inside, outside = Claim(2, (1.0,)), Holding(3, (1.0,))
    refused = ask(nominal, used, inside, outside, parents=parents, fenced=[0])
    assert (refused.rule, refused.queue) == ("Fenced", 0)
    assert ask(nominal, used, inside, outside, parents=parents, fenced=[1]) is None


def test_what_is_guaranteed_is_never_taken_and_what_is_deserved_comes_back():
    """scheduling-D5: guarantee 4, deserved 5; of 8 in use 4 may go at once, 5 may not; limit 8."""
    stated = {"guaranteed": column(0, 4), "limit": column(np.inf, 8)}
    claim = Claim(0, (5.0,))
    assert ask((5, 5), (0, 8), claim, Holding(1, (4.0,)), **stated) is None
    refused = ask((5, 5), (0, 8), claim, Holding(1, (5.0,)), **stated)
    assert (refused.rule, refused.queue, refused.bound, refused.used, refused.asked) == (
        "Kept",
        1,
        4,
        8,
        5,
    )
    rules = quotas(tree([-1, -1]), nominal=column(5, 5), **stated)
    ledger = Ledger(rules, column(0, 8), np.array([10.0]))
    assert ledger.refusal(1, (1.0,)).rule == "Limit"


def test_what_may_not_be_lent_is_never_taken():
    holding = Holding(1, (2.0,))
    refused = ask((5, 5), (4, 6), Claim(0, (1.0,)), holding, lending=column(5, 0))
    assert (refused.rule, refused.bound) == ("Kept", 5)


def test_a_weight_of_0_takes_back_its_own_and_borrows_nothing_by_force():
    """scheduling-D6."""
    weight = np.array([0.0, 1.0])
    assert ask((3, 3), (2, 8), Claim(0, (1.0,)), Holding(1, (1.0,)), weight=weight) is None
    refused = ask((3, 3), (3, 7), Claim(0, (1.0,)), Holding(1, (1.0,)), weight=weight)
    assert (refused.rule, refused.queue) == ("WeightZero", 0)


def test_what_a_weight_of_0_has_borrowed_goes_to_anybody_and_its_own_to_nobody():
    """scheduling-D6 (kueue#4961)."""
    weight = np.array([1.0, 0.0])
    assert ask((3, 3), (5, 5), Claim(0, (1.0,)), Holding(1, (1.0,)), weight=weight) is None
    assert (
        ask((3, 3), (3, 3), Claim(0, (1.0,)), Holding(1, (1.0,)), weight=weight).rule == "WithinNominal"
    )


def test_a_family_that_has_its_own_protects_its_members():
    """A member may have more than its own as long as its family has not."""
    parents = [-1, -1, 1, 1]
    nominal, used = (4, 6, 2, 2), (4, 0, 6, 0)
    refused = ask(nominal, used, Claim(0, (1.0,)), Holding(2, (1.0,)), parents=parents)
    assert (refused.rule, refused.queue, refused.bound) == ("WithinNominal", 1, 6)
    assert ask(nominal, used, Claim(3, (1.0,)), Holding(2, (1.0,)), parents=parents) is None


def test_own_of_one_resource_comes_back_whatever_was_borrowed_of_another():
    """kueue#9406: far ahead in GPUs, and still within its own CPUs."""
    rules = quotas(tree([-1, -1]), nominal=np.array([[5.0, 0.0], [5.0, 4.0]]))
    ledger = Ledger(rules, np.array([[2.0, 4.0], [8.0, 0.0]]), np.array([10.0, 4.0]))
    assert reclaim_refusal(ledger, Claim(0, (1.0, 0.0)), Holding(1, (1.0, 0.0)), Laws()) is None
    refused = reclaim_refusal(ledger, Claim(0, (4.0, 0.0)), Holding(1, (1.0, 0.0)), Laws())
    assert refused.rule == "Unfair"
    nothing = reclaim_refusal(ledger, Claim(0, (0.0, 1.0)), Holding(1, (1.0, 0.0)), Laws())
    assert nothing.rule == "FreesNothing"


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_seven_laws_hold_for_whatever_is_allowed(data):
    """scheduling-E15: as invariants, in trees at random; and to ask changes nothing (a suggestion)."""
    count = data.draw(st.integers(2, 7))
    parents = [data.draw(st.integers(-1, at - 1)) for at in range(count)]
    made = tree(parents)
    leaves = np.flatnonzero(made.leaf).tolist()

    def amounts(most):
        row = st.lists(st.integers(0, most), min_size=2, max_size=2)
        return np.array(data.draw(st.lists(row, min_size=count, max_size=count)), dtype=float)

    used = np.where(made.leaf[:, None], amounts(6), 0.0)
    kept, nominal = amounts(2), amounts(3)
    weight = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=count, max_size=count))
    )
    fenced = data.draw(st.lists(st.integers(0, count - 1), max_size=2))
    rules = quotas(made, nominal=kept + nominal, guaranteed=kept, weight=weight, fenced=fenced)
    ledger = Ledger(rules, used, np.array([20.0, 20.0]))
    laws = data.draw(st.sampled_from([STRICT, Laws()]))
    unequal = data.draw(st.booleans())
    pair = st.lists(st.integers(0, 3), min_size=2, max_size=2).map(lambda row: tuple(map(float, row)))
    for mine in leaves:
        for theirs in leaves:
            claim = Claim(
                mine, data.draw(pair), data.draw(st.integers(0, 1)), job=data.draw(st.integers(0, 2))
            )
            give = tuple(min(v, held) for v, held in zip(data.draw(pair), used[theirs], strict=True))
            holding = Holding(
                theirs, give, data.draw(st.integers(0, 1)), job=data.draw(st.integers(0, 2))
            )
            before = copy.deepcopy(ledger.__dict__["use"])
            refused = reclaim_refusal(ledger, claim, holding, laws, unequal=unequal)
            assert ledger.use == before
            if refused is not None:
                continue
            assert claim.job != holding.job
            above, other = made.fork(mine, theirs)
            if mine == theirs:
                assert holding.priority < claim.priority
                continue
            use = np.array(ledger.use)
            for node in other:
                left = use[node] - give
                assert (left >= rules.kept[node])[np.array(give) > 0].all()
                assert (use[node] > rules.nominal[node]).any()
            assert not rules.fenced[list(above)].any()
            within = use[above[-1]] + claim.ask <= rules.nominal[above[-1]]
            if laws is STRICT:
                assert holding.priority <= claim.priority
                assert within[np.array(claim.ask) > 0].all()


def test_rules_are_told_with_their_numbers():
    refused = ask((3, 3), (3, 5), Claim(0, (2.0,)), Holding(1, (1.0,)))
    assert refused.rule == "Unfair"
    assert refused.used == pytest.approx(2 / 10)
    assert refused.bound == pytest.approx(1 / 10)
