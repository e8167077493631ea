from dataclasses import dataclass

import numpy as np
import pytest

from shoal.schedule.shares.laws import Claim, Holding, Laws
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.offers import Offers
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.tree import tree
from shoal.schedule.shares.victims import choose
from tests.schedule.shares.worlds import column, world

QUOTAS = (3, 3, 3)


@pytest.mark.parametrize(
    ("held", "queue", "ask", "taken"),
    [
        ({"a": [1] * 3, "b": [1] * 5, "c": [1]}, "c", 1, ["b1"]),
        ({"a": [1] * 3, "b": [1] * 5, "c": [1]}, "a", 1, ["b1"]),
        ({"a": [1] * 3, "b": [1] * 3, "c": [1] * 3}, "c", 1, None),
        ({"a": [1] * 3, "b": [1] * 5}, "a", 2, None),
        ({"b": [9]}, "a", 2, ["b1"]),
        ({"a": [2], "b": [7]}, "a", 5, None),
        ({"b": [2, 2.5], "c": [2, 2.5]}, "a", 3.5, ["b1", "c1"]),
        ({"a": [3.5], "b": [2.5], "c": [2.5]}, "b", 2, None),
    ],
    ids=[
        "own from who uses most",
        "borrowed from who uses most",
        "nobody has more than its own",
        "it would only switch the imbalance",
        "one huge holding",
        "the claim is huge too",
        "one of each queue",
        "and nothing comes back",
    ],
)
def test_the_fair_set(held, queue, ask, taken):
    """scheduling-E9: a, b, c have 3 each of 9; who is taken from for what."""
    assert world(held, QUOTAS, 9).victims(queue, ask) == taken


@pytest.mark.parametrize(
    ("held", "queue", "ask", "taken"),
    [
        ({"a": [3, 1], "b": [2, 3]}, "c", 3, ["a1"]),
        ({"a": [0.5, 0.5, 3], "b": [0.5, 0.5, 3]}, "c", 2, ["a1", "b1"]),
        ({"b": [2, 1, 2], "c": [1]}, "a", 3.5, ["b2"]),
        ({"b": [3, 3], "c": [3]}, "a", 4, None),
        ({"b": [2, 2, 3]}, "a", 6, None),
        ({"a": [(1, -1), (1, -1), 1, 1], "b": [1] * 5}, "a", 2, ["a1", "a2"]),
        ({"a": [(1, -1), 1, 1], "b": [1] * 6}, "a", 2, ["a1", "b1"]),
    ],
    ids=[
        "who has less, where the most is not enough",
        "of each that borrows",
        "rather what leaves nobody ahead",
        "one would be enough only with the other's own",
        "two small ones for a huge one",
        "lower priority in the own queue",
        "own queue and the one that is ahead",
    ],
)
def test_more_of_the_fair_set(held, queue, ask, taken):
    """scheduling-E9: further cases of Kueue's fair sharing, with the same quotas."""
    assert world(held, QUOTAS, 9).victims(queue, ask) == taken


def test_who_weighs_more_may_take_more():
    """scheduling-E9: a weighs 2 and takes two from b; with weight 1 it may not."""
    held = {"a": [1] * 3, "b": [1] * 6}
    assert world(held, QUOTAS, 9, weight=np.array([2.0, 1.0, 1.0])).victims("a", 2) == ["b1", "b2"]
    assert world(held, QUOTAS, 9).victims("a", 2) is None


def test_all_that_a_weight_of_0_has_borrowed_may_go():
    """scheduling-D6: also the last of it, and nothing of its own."""
    held = {"a": [1] * 3, "b": [1] * 6}
    weight = np.array([1.0, 0.0, 1.0])
    assert world(held, QUOTAS, 9, weight=weight).victims("a", 3) == ["b1", "b2", "b3"]
    assert world(held, QUOTAS, 9, weight=weight).victims("a", 4) is None


def test_only_the_task_beyond_the_quota_goes():
    """scheduling-E3: 2 GPUs, deserved 1 and 1, weight 0; q0 holds 2, q1 wants [1..3]: it gets one."""
    cluster = world({"a": [(1, 1), (1, 0)]}, (1, 1), 2, weight=np.zeros(2))
    assert cluster.victims("b", 1) == ["a2"]
    cluster.ledger.charge(0, (1.0,), -1)
    cluster.ledger.charge(1, (1.0,))
    cluster.holdings.pop(1)
    assert cluster.victims("b", 1) is None


def test_nothing_goes_if_a_task_inside_the_quota_would_have_to():
    """scheduling-E4: 3 GPUs, q0 and q2 deserve 2; q2 runs 3 elastic tasks, q0 wants two at once."""
    cluster = world({"c": [1, 1, 1]}, (2, 0, 2), 3)
    assert cluster.victims("a", 2) is None
    assert cluster.victims("a", 1) == ["c1"]


def test_of_each_queue_the_job_of_lower_priority():
    """scheduling-E8: 6 GPUs, two queues deserve 1 and run 3; the third deserves 2, weighs 0, wants 2."""
    held = {"a": [(1, 1), (1, 0), (1, 1)], "b": [(1, 1), (1, 1), (1, 0)]}
    cluster = world(held, (1, 1, 2), 6, weight=np.array([1.0, 1.0, 0.0]))
    assert cluster.victims("c", 2) == ["a2", "b3"]
    assert cluster.victims("c", 3) is None


def test_the_newest_of_equal_priority_goes_first():
    rules = quotas(tree([-1, -1]), nominal=column(2, 2))
    holdings = [Holding(1, (1.0,), started=started) for started in (5.0, 9.0, 7.0, 1.0)]
    ledger = Ledger(rules, column(0, 4), np.array([4.0]))
    assert choose(ledger, Claim(0, (1.0,)), Offers(holdings), Laws()) == (1,)
    assert choose(ledger, Claim(0, (2.0,)), Offers(holdings), Laws()) == (1, 2)


@dataclass(frozen=True)
class Needs:
    """A place for the claim, once all of `where` are gone."""

    where: set[int]
    steady: bool

    def fits(self, gone):
        return self.where <= set(gone)

    def takes(self, gone):
        return self.where & set(gone)


def test_what_fits_takes_nothing_and_placement_has_a_say():
    rules = quotas(tree([-1, -1]), nominal=column(2, 2))
    holdings = [Holding(1, (1.0,)), Holding(1, (1.0,)), Holding(1, (1.0,))]
    ledger = Ledger(rules, column(0, 3), np.array([4.0]))
    before = ledger.use
    assert choose(ledger, Claim(0, (1.0,)), Offers(holdings), Laws()) == ()
    for steady in (False, True):
        needs_first, nowhere = Needs({0}, steady=steady), Needs({0, 9}, steady=steady)
        assert choose(ledger, Claim(0, (1.0,)), Offers(holdings), Laws(), needs_first) == (0,)
        assert choose(ledger, Claim(0, (1.0,)), Offers(holdings), Laws(), nowhere) is None
    assert ledger.use == before == [[0.0], [3.0]]


def test_families_are_compared_before_their_members():
    """Capacity 20; LEFT has 7 of its own, RIGHT 7; of the right ones e is ahead by its lower weight."""
    parents = [-1, -1, -1, 0, 0, 2, 2]  # LEFT, c, RIGHT, a and b left, d and e right
    rules = quotas(
        tree(parents),
        nominal=column(7, 1, 7, 1, 1, 1, 1),
        weight=np.array([2.0, 1.0, 1.0, 2.0, 1.0, 1.0, 0.99]),
    )
    held = [4] * 5 + [1] * 5 + [5] * 5 + [6] * 5
    ledger = Ledger(rules, column(0, 5, 0, 0, 5, 5, 5), np.array([20.0]))
    holdings = [Holding(queue, (1.0,)) for queue in held]
    taken = choose(ledger, Claim(3, (4.0,)), Offers(holdings), Laws())
    assert taken is not None
    assert sorted(held[at] for at in taken) == [1, 1, 5, 6]
    alone = choose(ledger, Claim(3, (1.0,)), Offers(holdings), Laws())
    assert alone is not None
    assert held[alone[0]] == 1  # 4/20 over its own; RIGHT has 3/20


def test_what_is_put_back_leaves_the_rest_lawful():
    """kueue#14543: the claimant's own holding may not return if that puts it ahead of who else gives."""
    rules = quotas(tree([-1, -1]), nominal=column(0, 0))
    # own: 3 of lower priority; other: one of 6. With 5 more the claimant would have 5 or 8.
    holdings = [Holding(0, (3.0,), priority=-1), Holding(1, (6.0,))]
    ledger = Ledger(rules, column(3, 6), np.array([10.0]))
    assert choose(ledger, Claim(0, (5.0,)), Offers(holdings), Laws()) == (0, 1)
