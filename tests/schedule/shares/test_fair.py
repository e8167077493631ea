import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.shares.fair import fair_shares
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.tree import tree
from tests.schedule.shares.worlds import column

FLAT = tree([-1, -1, -1])


def fair(rules, demand, capacity):
    return fair_shares(rules, column(*demand), np.array([float(capacity)])).fair[:, 0].tolist()


def test_deserved_first_then_by_weight_and_priority():
    """scheduling-D4: 12 GPUs, deserved 2 each; 6 are over: by weight 1:2:3, or by priority first."""
    deserved = column(2, 2, 2)
    weighted = quotas(FLAT, nominal=deserved, weight=np.array([1.0, 2.0, 3.0]))
    assert fair(weighted, (9, 9, 9), 12) == pytest.approx([3, 4, 5])
    assert fair(weighted, (9, 9, 1), 12) == pytest.approx([2 + 7 / 3, 2 + 14 / 3, 1])
    ranked = quotas(
        FLAT, nominal=deserved, weight=np.array([1.0, 2.0, 3.0]), priority=np.array([1, 0, 0])
    )
    assert fair(ranked, (6, 9, 9), 12) == pytest.approx([6, 2 + 0.8, 2 + 1.2])
    assert fair(ranked, (9, 9, 9), 12) == pytest.approx([8, 2, 2])
    assert fair(ranked, (9, 9, 9), 3) == pytest.approx([1, 1, 1])  # priority is no claim on others' own


def test_guarantee_deserved_and_capability():
    """scheduling-D5: an idle guarantee is not lent, idle deserved is, and none passes its limit."""
    stated = {"guaranteed": column(2, 0, 0), "limit": column(np.inf, 4, np.inf)}
    rules = quotas(FLAT, nominal=column(3, 3, 3), **stated)
    assert fair(rules, (0, 9, 2), 9) == pytest.approx([0, 4, 2])
    assert fair(rules, (0, 9, 9), 9) == pytest.approx([0, 3.5, 3.5])
    found = fair_shares(rules, column(0, 9, 9), np.array([9.0]))
    assert found.idle[:, 0].tolist() == [2, 0, 0]
    assert found.deserved[:, 0].tolist() == [0, 3, 3]
    assert fair(rules, (9, 9, 9), 9) == pytest.approx([3, 3, 3])


def test_a_weight_of_0_has_its_own_and_borrows_nothing_by_right():
    """scheduling-D6."""
    rules = quotas(FLAT, nominal=column(3, 3, 3), weight=np.array([0.0, 1.0, 1.0]))
    assert fair(rules, (9, 9, 0), 9) == pytest.approx([3, 6, 0])
    nobody = quotas(FLAT, nominal=column(3, 3, 3), weight=np.zeros(3))
    assert fair(nobody, (9, 9, 0), 9) == pytest.approx([3, 3, 0])


def test_borrowing_and_lending_limits():
    rules = quotas(
        FLAT, nominal=column(3, 3, 3), borrowing=column(1, np.inf, 0), lending=column(3, 3, 1)
    )
    assert fair(rules, (9, 9, 0), 9) == pytest.approx([3.5, 3.5, 0])
    assert fair(rules, (9, 3, 0), 9) == pytest.approx([4, 3, 0])
    assert fair(rules, (0, 0, 9), 9) == pytest.approx([0, 0, 3])


def test_a_family_lends_to_its_own_first():
    """Kueue KEP-1714, story 2: what 1A leaves goes to 1B and 1C before anybody of the second family."""
    parents = tree([-1, -1, 0, 0, 0, 1])
    rules = quotas(parents, nominal=column(0, 0, 6, 0, 0, 0))
    assert fair(rules, (0, 0, 2, 9, 9, 9), 10) == pytest.approx([8, 2, 2, 3, 3, 2])


def test_what_is_stated_for_the_parent_alone_belongs_to_all_of_its_children():
    parents = tree([-1, -1, 0, 0, 1])
    rules = quotas(parents, nominal=column(6, 4, 1, 0, 0), guaranteed=column(6, 0, 0, 0, 0))
    assert fair(rules, (0, 0, 9, 9, 9), 8) == pytest.approx([6, 2, 3.5, 2.5, 2])
    assert fair(rules, (0, 0, 1, 0, 9), 10) == pytest.approx([1, 4, 1, 0, 4])


def test_a_guarantee_for_nobody_does_not_starve_who_is_there():
    """Nodes are lost: what remains serves the guarantees that are wanted before those that are not."""
    rules = quotas(FLAT, nominal=column(5, 5, 0), guaranteed=column(5, 5, 0))
    assert fair(rules, (0, 5, 9), 6) == pytest.approx([0, 5, 0])
    assert fair(rules, (5, 5, 9), 6) == pytest.approx([3, 3, 0])


@pytest.mark.parametrize(
    ("demand", "capacity"), [(-1.0, 9.0), (np.nan, 9.0), (np.inf, 9.0), (1.0, -1.0)]
)
def test_numbers_that_are_no_amounts_are_refused(demand, capacity):
    with pytest.raises(ValueError, match="amount from 0 up for each"):
        fair(quotas(FLAT, nominal=column(3, 3, 3)), (demand, 0, 0), capacity)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_everybody_has_its_own_and_nothing_useful_stays_idle(data):
    """Sharing incentive against quotas, and Pareto efficiency in a tree with all kinds of limits."""
    count, resources = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 3))
    made = tree([data.draw(st.integers(-1, at - 1)) for at in range(count)])

    def table(values):
        row = st.lists(values, min_size=resources, max_size=resources)
        return np.array(data.draw(st.lists(row, min_size=count, max_size=count)), dtype=float)

    kept, nominal = table(st.integers(0, 2)), table(st.integers(0, 3))
    sizes = st.sampled_from([0, 1, 2, np.inf, np.inf])
    rules = quotas(
        made,
        nominal=kept + nominal,
        guaranteed=kept,
        borrowing=table(sizes),
        lending=table(sizes),
        weight=np.array(
            data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), dtype=float
        ),
        priority=np.array(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))),
    )
    demand = table(st.integers(0, 9))
    capacity = rules.nominal[made.members[-1]].sum(axis=0) + data.draw(st.integers(0, 4))
    found = fair_shares(rules, demand, capacity)
    wish = np.minimum(demand, rules.ceiling)
    leaves = np.flatnonzero(made.leaf)
    assert found.fair == pytest.approx(made.sums(np.where(made.leaf[:, None], found.fair, 0.0)))
    assert (found.fair <= rules.ceiling + 1e-9).all()
    assert (found.fair[leaves] <= demand[leaves] + 1e-9).all()
    assert (found.fair[leaves] >= np.minimum(wish, rules.nominal)[leaves] - 1e-7).all()
    top = made.members[-1]
    assert ((found.fair + found.idle)[top].sum(axis=0) <= capacity + 1e-7).all()
    full = found.fair + found.idle >= rules.ceiling - 1e-7
    spent = (found.fair + found.idle)[top].sum(axis=0) >= capacity - 1e-7
    for leaf in leaves:
        path = list(made.paths[leaf])
        short = found.fair[leaf] < wish[leaf] - 1e-7
        if short.any() and (rules.weight[path] > 0).all():
            assert (full[path].any(axis=0) | spent)[wish[leaf] - found.fair[leaf] > 1e-12].any()
