from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shoal.elastic.ledger.deal import Step, advance, next_step, parts_of, share_of
from shoal.elastic.ledger.fetch import Order
from shoal.elastic.view import Cursor

counts = st.integers(1, 200)


@given(counts, counts, st.integers(1, 4), st.data())
def test_every_sample_is_dealt_once_an_epoch_whoever_is_there(length, batch, epochs, data):
    order = Order(length, seed=3)
    cursor, seen = Cursor(), []
    while (step := next_step(cursor, length, batch, epochs)) is not None:
        size = data.draw(st.integers(1, 9))
        dealt = [share_of(step, rank, size) for rank in range(size)]
        assert dealt[0][0] == step.first
        assert dealt[-1][1] == step.end
        assert all(a[1] == b[0] for a, b in pairwise(dealt))
        sizes = [end - first for first, end in dealt]
        assert max(sizes) - min(sizes) <= 1
        for first, end in dealt:
            seen += [(step.epoch, index) for index in order.indices(step.epoch, first, end)]
        cursor = advance(step, length)
    assert sorted(seen) == [(epoch, index) for epoch in range(epochs) for index in range(length)]


@given(st.integers(0, 100), st.integers(1, 40), st.integers(1, 4), st.integers(1, 8))
def test_parts_cover_the_share_and_weigh_together_what_it_weighs(count, largest, accumulate, others):
    step = Step(0, 10, 10 + count * others + 1)
    parts = parts_of(step, (10, 10 + count), largest, accumulate)
    assert sum(part.samples for part in parts) == count
    assert all(part.samples <= largest for part in parts)
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) % accumulate == 0
    total = sum(part.weight for part in parts)
    assert abs(total - count * accumulate / step.samples) < 1e-9


def test_the_last_step_of_an_epoch_may_be_smaller():
    step = next_step(Cursor(0, 96), 100, 16, 2)
    assert step == Step(0, 96, 100)
    assert advance(step, 100) == Cursor(1, 0)
    assert next_step(Cursor(2, 0), 100, 16, 2) is None


def test_an_order_is_a_function_of_seed_and_epoch():
    first, again, other = Order(50, 1), Order(50, 1), Order(50, 2)
    assert first.indices(0, 0, 50) == again.indices(0, 0, 50)
    assert first.indices(1, 0, 50) != first.indices(0, 0, 50)
    assert other.indices(0, 0, 50) != first.indices(0, 0, 50)
    assert Order(50, 2).indices(0, 0, 50) != Order(50, 1).indices(1, 0, 50)
    assert Order(5, 0, shuffle=False).indices(7, 1, 4) == [1, 2, 3]
