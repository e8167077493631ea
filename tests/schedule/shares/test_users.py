import numpy as np
import pytest

from shoal.schedule.shares.ledger import Refusal
from shoal.schedule.shares.tree import tree
from shoal.schedule.shares.users import UserCaps
from tests.schedule.shares.worlds import column


def test_a_user_has_so_much_in_a_queue_and_below_it():
    caps = UserCaps(tree([-1, 0, 0, -1]), column(6, 4, np.inf, np.inf))
    caps.charge(1, "ann", (3.0,))
    caps.charge(2, "ann", (2.0,))
    assert caps.refusal(1, "ann", (2.0,)) == Refusal("UserCap", 1, 0, 4, 3, 2)
    assert caps.refusal(2, "ann", (2.0,)) == Refusal("UserCap", 0, 0, 6, 5, 2)
    assert caps.refusal(2, "ann", (1.0,)) is None
    assert caps.refusal(1, "bob", (4.0,)) is None
    assert caps.refusal(3, "ann", (99.0,)) is None
    caps.charge(1, "ann", (3.0,), -1)
    assert caps.refusal(1, "ann", (4.0,)) is None


def test_only_what_is_asked_for_counts():
    caps = UserCaps(tree([-1]), np.array([[1.0, 2.0]]))
    caps.charge(0, "ann", (3.0, 0.0))  # lowered afterwards
    assert caps.refusal(0, "ann", (0.0, 2.0)) is None
    assert caps.refusal(0, "ann", (1.0, 0.0)).resource == 0


def test_a_cap_is_an_amount():
    with pytest.raises(ValueError, match="a user's cap is an amount"):
        UserCaps(tree([-1]), column(np.nan))
