"""When a step goes on, and with whom: every order in which ranks may be ready."""

from __future__ import annotations

from itertools import permutations

import pytest

from shoal.elastic.allreduce.votes import Go, Tally


@pytest.mark.parametrize("needed", [1, 2, 3, 4])
def test_the_first_that_are_ready_make_the_step(needed: int):
    for order in permutations(range(4)):
        tally = Tally(4, needed)
        said = [tally.hear(rank, 0, 7 + rank) for rank in order]
        assert [go is not None for go in said] == [number == needed - 1 for number in range(4)]
        go = said[needed - 1]
        assert go is not None
        assert {rank for rank in range(4) if go.ranks[rank]} == set(order[:needed])
        assert go.place == 7 + order[0]
        assert Go.from_numbers(go.to_numbers()) == go


def test_who_is_late_is_not_counted_in_the_next_step():
    tally = Tally(3, 2)
    assert tally.hear(0, 0, 0) is None
    assert tally.hear(2, 0, 0) is not None
    assert tally.hear(1, 0, 0) is None
    assert tally.hear(0, 1, 0) is None
    go = tally.hear(1, 1, 0)
    assert go == Go(1, 0, (True, True, False))


def test_who_says_it_twice_counts_once():
    tally = Tally(3, 2)
    assert tally.hear(0, 0, 0) is None
    assert tally.hear(0, 0, 0) is None
    assert tally.hear(1, 0, 0) == Go(0, 0, (True, True, False))


def test_nobody_can_be_ahead():
    with pytest.raises(ValueError, match="is not decided"):
        Tally(3, 2).hear(0, 1, 0)


@pytest.mark.parametrize("needed", [0, 4])
def test_bad_input(needed: int):
    with pytest.raises(ValueError, match="cannot be waited for"):
        Tally(3, needed)
