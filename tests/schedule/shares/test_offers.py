from shoal.schedule.shares.laws import Holding
from shoal.schedule.shares.offers import Kind, Offers


def _low(kind: Kind) -> bool:
    return kind[0] < 1


def _offers() -> Offers:
    """Numbers 0 to 4: three of two kinds in queue 0, one each in 1 and 2."""
    held = [(0, 1.0, 0, 5.0), (0, 1.0, 0, 7.0), (0, 2.0, 1, 9.0), (1, 1.0, 1, 0.0), (2, 1.0, 0, 0.0)]
    return Offers(Holding(q, (amount,), priority, since) for q, amount, priority, since in held)


def test_of_each_kind_the_first_is_a_head_and_the_next_when_it_is_taken():
    heads = _offers().heads(0, None, None, None)
    assert list(heads) == [1, 2]  # the lower priority, and of that the newest
    heads.take(1)
    assert list(heads) == [0, 2]
    heads.take(2)
    heads.take(0)
    assert list(heads) == []


def test_heads_are_of_the_kinds_priorities_and_numbers_that_count():
    offers = _offers()
    assert list(offers.heads(0, _low, None, None)) == [1]
    assert list(offers.heads(0, None, 1, None)) == [1]
    assert list(offers.heads(0, None, 0, None)) == []
    assert list(offers.heads(0, None, None, lambda at: at != 1)) == [0, 2]


def test_what_is_known_of_a_queue_is_forgotten_when_it_offers_more_or_less():
    offers = _offers()
    assert (offers.queues(), offers.queues(_low)) == ([0, 1, 2], [0, 2])
    offers.remove(4)
    assert (offers.queues(), offers.queues(_low)) == ([0, 1], [0])
    assert offers.add(Holding(1, (1.0,), 0, 8.0)) == 5
    assert offers.queues(_low) == [0, 1]
    assert list(offers.heads(1, None, None, None)) == [5, 3]
    assert offers.lowest(1) == 0
