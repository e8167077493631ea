import numpy as np
import pytest

from shoal.schedule.shares.quotas import overcommitted, quotas
from shoal.schedule.shares.tree import tree
from tests.schedule.shares.worlds import column

FAMILY = tree([-1, 0, 0])


def test_a_parent_has_what_its_children_have_or_what_is_stated_if_that_is_more():
    assert quotas(FAMILY, nominal=column(0, 2, 3)).nominal[0, 0] == 5
    assert quotas(FAMILY, nominal=column(9, 2, 3)).nominal[0, 0] == 9
    rules = quotas(FAMILY, nominal=column(9, 2, 3), guaranteed=column(3, 1, 1))
    assert rules.kept[:, 0].tolist() == [3, 1, 1]


def test_what_may_not_be_lent_is_kept():
    rules = quotas(
        FAMILY, nominal=column(0, 4, 4), lending=column(np.inf, 1, 9), guaranteed=column(0, 2, 0)
    )
    assert rules.kept[:, 0].tolist() == [3, 3, 0]


def test_borrowing_and_limit_are_one_ceiling():
    rules = quotas(
        FAMILY, nominal=column(0, 4, 4), borrowing=column(1, 2, np.inf), limit=column(np.inf, 5, 7)
    )
    assert rules.ceiling[:, 0].tolist() == [9, 5, 7]


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"nominal": column(0, -1, 0)}, "queue 1 has nominal -1.0 of resource 0; a finite amount"),
        ({"nominal": column(0, np.inf, 0)}, "a finite amount from 0 up"),
        ({"limit": column(1, np.nan, 1)}, "queue 1 has limit nan of resource 0; an amount"),
        ({"weight": np.array([1.0, -1.0, 1.0])}, "queue 1 has weight -1.0"),
        ({"weight": np.array([1.0, 1.0, np.inf])}, "queue 2 has weight inf"),
        ({"guaranteed": column(0, 3, 0)}, "queue 1 has guaranteed 3 of resource 0, above its nominal 2"),
        ({"limit": column(3, 9, 9)}, "queue 0 has nominal 4 of resource 0, above its limit 3"),
        ({"lending": np.zeros((2, 1))}, r"lending is \(2, 1\), expected \(3, 1\)"),
    ],
)
def test_what_makes_no_sense_is_named(stated, says):
    with pytest.raises(ValueError, match=says):
        quotas(FAMILY, **{"nominal": column(0, 2, 2), **stated})


def test_more_promised_than_there_is():
    rules = quotas(FAMILY, nominal=np.array([[0.0, 0.0], [2.0, 5.0], [2.0, 1.0]]))
    assert overcommitted(rules, np.array([4.0, 5.0])) == (1, 6.0, 5.0)
    assert overcommitted(rules, np.array([4.0, np.inf])) is None
