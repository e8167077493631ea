import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.placing.choose import FAR, evenly, fewest, tightest_first
from tests.schedule.placing.model import least_nodes


def chosen(rule, holds, key, count):
    keys = np.where(np.array(holds) > 0, key, FAR)
    positions, each = rule(np.array(holds), keys, count)
    return dict(zip(positions.tolist(), each.tolist(), strict=True))


def test_the_tightest_that_holds_all():
    assert chosen(fewest, [3, 5, 4, 4], [3, 5, 4, 4], 4) == {2: 4}
    assert chosen(fewest, [5, 5], [7, 3], 4) == {1: 4}


def test_the_roomiest_are_filled_and_the_rest_goes_where_it_is_tightest():
    assert chosen(fewest, [4, 1, 4, 2, 4], [4, 1, 4, 2, 4], 9) == {0: 4, 2: 4, 1: 1}
    assert chosen(fewest, [4, 3, 3], [4, 9, 3], 9) == {0: 4, 2: 3, 1: 2}


def test_level_and_the_odd_ones_to_the_emptiest():
    assert chosen(evenly, [9, 1, 9], [5, 1, 6], 6) == {0: 2, 1: 1, 2: 3}
    assert chosen(evenly, [2, 2], [0, 0], 1) == {0: 1}


def test_the_tightest_are_filled_one_after_the_other():
    assert chosen(tightest_first, [3, 0, 2, 4], [3, 0, 2, 4], 7) == {2: 2, 0: 3, 3: 2}
    assert chosen(tightest_first, [3, 2], [3, 2], 99) == {1: 2, 0: 3}
    assert chosen(tightest_first, [0, 0], [0, 0], 1) == {}


def test_nothing_is_nowhere():
    assert chosen(fewest, [3], [3], 0) == {}
    assert chosen(evenly, [3], [3], 0) == {}


rows = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=8)


@settings(max_examples=50, deadline=None)
@given(rows, st.data())
def test_each_rule_deals_out_all_that_fits(pairs, data):
    holds, key = [h for h, _ in pairs], [k for _, k in pairs]
    count = data.draw(st.integers(0, sum(holds)))
    for rule in (fewest, evenly, tightest_first):
        dealt = chosen(rule, holds, key, count)
        assert sum(dealt.values()) == count
        assert all(0 < each <= holds[at] for at, each in dealt.items())
    assert len(chosen(fewest, holds, key, count)) == least_nodes(holds, count)
    each = chosen(evenly, holds, key, count)
    top = max(each.values(), default=0)
    assert all(each.get(at, 0) >= top - 1 or each.get(at, 0) == holds[at] for at in range(len(holds)))


@settings(max_examples=30, deadline=None)
@given(rows, st.data())
def test_the_last_of_the_few_is_the_tightest_that_holds_the_rest(pairs, data):
    holds, key = [h for h, _ in pairs], [k for _, k in pairs]
    count = data.draw(st.integers(0, sum(holds)))
    dealt = list(chosen(fewest, holds, key, count).items())
    if dealt:
        last, rest = dealt[-1]
        taken = {at for at, _ in dealt[:-1]}
        able = [(key[at], at) for at in range(len(holds)) if at not in taken and holds[at] >= rest]
        assert last == min(able)[1]


@settings(max_examples=30, deadline=None)
@given(rows, st.integers(1, 40))
def test_no_tighter_one_is_passed_over(pairs, count):
    holds, key = [h for h, _ in pairs], [k for _, k in pairs]
    order = [at for at in sorted(range(len(holds)), key=lambda at: (key[at], at)) if holds[at]]
    dealt = chosen(tightest_first, holds, key, count)
    assert list(dealt) == order[: len(dealt)]
    assert all(dealt[at] == holds[at] for at in list(dealt)[:-1])
