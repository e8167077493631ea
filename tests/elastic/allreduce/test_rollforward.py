from __future__ import annotations

import itertools

import pytest

from shoal.elastic.allreduce.rollforward import Outcome, Record, decide

YES, NO = True, False


def test_who_is_behind_takes_the_state_of_the_first_who_is_not():
    records = [Record(4, (YES, NO)), Record(5, (NO, NO)), Record(5, (YES, NO))]
    assert decide(records) == Outcome("state", 5, donor=1)


def test_a_newcomer_without_a_state_takes_one():
    assert decide([Record(-1, (NO,)), Record(7, (NO,))]) == Outcome("state", 7, donor=1)


def test_what_they_hold_together_is_enough():
    records = [Record(5, (YES, NO, NO)), Record(5, (NO, NO, YES)), Record(5, (YES, YES, NO))]
    outcome = decide(records)
    assert (outcome.how, outcome.applied) == ("buckets", 6)
    assert outcome.copies == ((0, 0), (1, 2), (2, 1))


def test_a_bucket_that_nobody_has_is_computed_again():
    assert decide([Record(5, (YES, NO)), Record(5, (NO, NO))]).how == "rerun"


def test_complete_everywhere_needs_no_copy():
    assert decide([Record(5, (YES, YES))] * 3) == Outcome("buckets", 6, 0, ())


def test_who_comes_back_from_an_older_view_takes_the_newest_state():
    """training-P1 (revision skipped): a peer refuses whose revision has not risen by exactly one; ours
    lets nobody go on from there either, and gives it the newest state."""
    assert decide([Record(3, (NO,)), Record(5, (NO,))]) == Outcome("state", 5, donor=1)


def test_nobody_begins_from_nothing():
    with pytest.raises(ValueError, match="no rank has a state"):
        decide([Record(-1, (NO,))])


def test_a_step_is_never_lost_and_never_applied_from_a_hole():
    """Over every state that three ranks of two buckets can be in."""
    one = [Record(a, f) for a in (4, 5) for f in itertools.product((NO, YES), repeat=2)]
    for records in itertools.product(one, repeat=3):
        outcome = decide(records)
        newest = max(r.applied for r in records)
        assert outcome.applied >= newest
        if outcome.how == "buckets":
            assert all(r.applied == newest for r in records)
            for bucket in range(2):
                assert any(r.finished[bucket] for r in records)
            for bucket, holder in outcome.copies:
                assert records[holder].finished[bucket]
        if outcome.how == "state":
            assert records[outcome.donor].applied == newest
