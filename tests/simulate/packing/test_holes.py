import pytest

from shoal.simulate.packing.fitting import typical
from shoal.simulate.packing.holes import hole_worth
from tests.simulate.packing.small import nodes_of, pods_of


def worth(tmp_path, patience, *pods):
    nodes = nodes_of(tmp_path, "8000,8000,1,T4")
    return hole_worth(typical(pods_of(tmp_path, *pods), nodes, 1.0, idle=True), patience)


def test_a_hole_is_worth_what_the_pods_that_come_for_it_use(tmp_path):
    table = worth(tmp_path, 2, "1,1,1,200", "1,1,1,400", "1,1,1,1000", "1,1,0,0")
    assert len(table) == 1001
    assert table[199] == 0
    assert table[200] == table[399] == pytest.approx((1 - 0.75**2) * 200)
    assert table[400] == table[1000] == pytest.approx((1 - 0.5**2) * 300)


def test_who_waits_longer_gets_more_of_it(tmp_path):
    pods = ("1,1,1,200", "1,1,1,1000", "1,1,1,1000")
    assert worth(tmp_path, 0, *pods).max() == 0
    assert worth(tmp_path, 3, *pods)[500] < worth(tmp_path, 30, *pods)[500] < 200


def test_without_pods_that_share_a_hole_is_worth_nothing(tmp_path):
    assert worth(tmp_path, 30, "1,1,1,1000", "1,1,2,1000").max() == 0
