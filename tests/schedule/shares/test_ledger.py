import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.shares.ledger import CLUSTER, Ledger, Refusal
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.tree import tree
from tests.schedule.shares.worlds import column

FAMILY = [-1, -1, 0, 0]


def ledger(used, capacity=20.0, **stated):
    return Ledger(quotas(tree(FAMILY), **stated), column(*used), np.array([capacity]))


@pytest.mark.parametrize(
    ("stated", "ask", "refused"),
    [
        ({"limit": column(9, np.inf, 4, np.inf)}, 3, Refusal("Limit", 2, 0, 4, 2, 3)),
        ({"limit": column(9, np.inf, 9, np.inf)}, 6, Refusal("Limit", 0, 0, 9, 4, 6)),
        ({"borrowing": column(np.inf, 0, 1, 0)}, 2, Refusal("Borrowing", 2, 0, 3, 2, 2)),
        ({"borrowing": column(3, 0, np.inf, 0)}, 4, Refusal("Borrowing", 0, 0, 7, 4, 4)),
        ({"guaranteed": column(0, 2, 0, 0)}, 10, Refusal("Kept", CLUSTER, 0, 20, 11, 10)),
        ({"guaranteed": column(0, 0, 0, 0)}, 8, Refusal("Capacity", CLUSTER, 0, 20, 13, 8)),
    ],
)
def test_the_rule_the_level_and_the_numbers(stated, ask, refused):
    used = (
        (0, 9, 2, 2)
        if refused.rule == "Capacity"
        else (0, 0, 2, 2)
        if refused.queue != CLUSTER
        else (0, 0, 7, 2)
    )
    made = ledger(used, nominal=column(4, 9, 2, 2), **stated)
    assert made.refusal(2, (float(ask),)) == refused
    assert made.refusal(2, (1.0,)) is None


def test_a_sibling_keeps_its_guarantee_under_a_common_limit():
    made = ledger(
        (0, 0, 2, 0), nominal=column(0, 0, 3, 3), guaranteed=column(0, 0, 0, 3), limit=column(6, 9, 9, 9)
    )
    assert made.refusal(2, (2.0,)) == Refusal("Kept", 0, 0, 6, 5, 2)
    assert made.refusal(2, (1.0,)) is None
    assert made.refusal(3, (3.0,)) is None
    assert made.headroom(2) == [1.0]
    assert made.headroom(3) == [4.0]
    assert made.tasks(3, (1.5,), 9) == 2


def test_what_is_charged_comes_back_by_the_tenth():
    made = ledger((0, 0, 0, 0), capacity=1.0, nominal=column(0, 0, 0, 0))
    for _ in range(10):
        assert made.refusal(2, (0.1,)) is None
        made.charge(2, (0.1,))
    assert made.refusal(2, (0.1,)).rule == "Capacity"
    for _ in range(10):
        made.charge(2, (0.1,), -1)
    assert made.refusal(3, (1.0,)) is None


def test_resources_of_which_nothing_is_asked_do_not_matter():
    rules = quotas(tree([-1]), nominal=np.array([[1.0, 1.0]]), limit=np.array([[1.0, 4.0]]))
    made = Ledger(rules, np.array([[3.0, 0.0]]), np.array([2.0, np.inf]))  # nodes were lost
    assert made.refusal(0, (0.0, 4.0)) is None
    assert made.refusal(0, (0.0, 5.0)) == Refusal("Limit", 0, 1, 4, 0, 5)
    assert made.refusal(0, (1.0, 5.0)).resource == 0


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_headroom_refusals_and_counting_from_scratch_agree(data):
    """After any changes: up to its headroom a queue may have more, and nobody loses what is kept."""
    count = data.draw(st.integers(1, 6))
    made = tree([data.draw(st.integers(-1, at - 1)) for at in range(count)])

    def amounts(values):
        return column(*data.draw(st.lists(values, min_size=count, max_size=count)))

    kept = amounts(st.integers(0, 2))
    sizes = st.sampled_from([0, 1, 4, np.inf])
    nominal = kept + amounts(st.integers(0, 3))
    rules = quotas(
        made, nominal=nominal, guaranteed=kept, borrowing=amounts(sizes), lending=amounts(sizes)
    )
    capacity = np.array([float(rules.kept[made.members[-1]].sum() + data.draw(st.integers(0, 6)))])
    counted = Ledger(rules, np.zeros((count, 1)), capacity)
    used = np.zeros((count, 1))
    leaves = np.flatnonzero(made.leaf).tolist()
    for _ in range(data.draw(st.integers(0, 6))):
        queue = data.draw(st.sampled_from(leaves))
        room = counted.headroom(queue)[0]
        assert counted.refusal(queue, (room,)) is None
        assert counted.refusal(queue, (room + 1.0,)) is not None
        wishes = [(queue, (room,)), (queue, (room + 1.0,))]
        assert [counted.allows(*wish) for wish in wishes] == [True, False]
        hopeful = counted.hopeful(np.full(2, queue), np.array([ask for _, ask in wishes]))
        assert hopeful.tolist() == [True, False]
        amount = float(data.draw(st.integers(0, int(room))))
        counted.charge(queue, (amount,))
        used[queue] += amount
        if data.draw(st.booleans()) and used[queue] > 0:
            counted.charge(queue, (1.0,), -1)
            used[queue] -= 1
        fresh = Ledger(rules, used, capacity)
        assert fresh.__dict__ == {**counted.__dict__}
        for leaf in leaves:
            least = min(rules.kept[leaf, 0], rules.ceiling[list(made.paths[leaf]), 0].min())
            assert counted.use[leaf][0] + counted.headroom(leaf)[0] >= least


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(st.data())
def test_how_often_it_is_allowed_is_how_often_it_can_be_charged(data):
    """One after the other, whatever is lent, kept or limited; with fractions no more than once."""
    whole = data.draw(st.booleans())
    amounts = st.integers(0, 12).map(float) if whole else st.integers(0, 120).map(lambda n: n / 10)
    nominal, room = (column(*(data.draw(amounts) for _ in FAMILY)) for _ in range(2))
    nominal[0] = max(nominal[0], nominal[2] + nominal[3])
    inner = min(nominal[0, 0], nominal[3, 0])
    made = ledger(
        [data.draw(amounts) for _ in FAMILY],
        capacity=data.draw(st.sampled_from([15.0, 30.0, np.inf])),
        nominal=nominal,
        guaranteed=column(inner, nominal[1, 0], 0, inner),
        limit=nominal + room,
    )
    queue, ask, most = data.draw(st.integers(0, 3)), data.draw(amounts), data.draw(st.integers(0, 9))
    together, times = made.copy(), made.times(queue, (ask,), most)
    here = 0
    while here < most and made.allows(queue, (ask,)):
        made.charge(queue, (ask,))
        here += 1
    if not whole and times < 2:
        assert times == min(here, 1)
        return
    assert times == here
    together.charge(queue, (times * ask,))
    assert together.refusals(queue, (ask,)) == made.refusals(queue, (ask,))
    assert [together.headroom(at) for at in range(4)] == [made.headroom(at) for at in range(4)]
    assert together.use == made.use
