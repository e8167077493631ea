"""Curves from steps as they went."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.schedule.speed.learned import (
    Pace,
    Slower,
    hopeful,
    learned,
    shared,
    slower_with_more,
)


def pace(tasks: int, seconds: float, steps: int = 1) -> Pace:
    return Pace(tasks=tasks, seconds=seconds, steps=steps)


def step(tasks: int, fixed: float, divided: float, added: float = 0.0) -> float:
    return fixed + divided / tasks + added * (tasks - 1)


def test_of_nothing_nothing_is_known() -> None:
    assert learned([], 8) == ()


def test_what_was_not_seen_costs_nothing_and_twice_the_size_is_as_far_as_it_goes() -> None:
    """A job that has had two tasks is told that four would be twice as fast: it tries them once."""
    assert learned([pace(2, 0.5)], 8) == pytest.approx((1, 2, 3, 4))
    assert learned([pace(2, 0.5)], 3) == pytest.approx((1, 2, 3))
    assert learned([pace(1, 0.5)], 8) == pytest.approx((2, 4))


@pytest.mark.slow
@given(st.floats(0.01, 2), st.floats(0.05, 2), st.sets(st.integers(1, 12), min_size=2, max_size=5))
def test_a_fixed_part_is_found(fixed: float, divided: float, sizes: set[int]) -> None:
    """From any two sizes or more, between them and up to twice the largest; a part that makes next to no
    difference may be left out."""
    found = learned([pace(size, step(size, fixed, divided)) for size in sizes], 24)
    assert len(found) == 2 * max(sizes)
    for size in sizes:
        assert found[size - 1] == pytest.approx(1 / step(size, fixed, divided))
    if len(sizes) > 2 and min(sizes) == 1 and fixed > 0.2 * divided:
        for size in range(1, max(sizes) + 1):
            assert found[size - 1] == pytest.approx(1 / step(size, fixed, divided), rel=0.1)


def test_what_each_further_task_adds_is_found() -> None:
    """Four sizes of a job that is slower with sixteen tasks than with eight."""
    true = [step(size, 0.05, 1.0, 0.02) for size in range(1, 17)]
    found = learned([pace(size, true[size - 1]) for size in (1, 2, 4, 8)], 16)
    assert found == pytest.approx([1 / each for each in true], rel=0.01)
    assert found[15] < found[6]


def test_measured_sizes_are_as_measured_and_their_neighbours_are_corrected() -> None:
    """A size that is slower than any formula has it, as one that does not fit on a node."""
    paces = [pace(1, 1.0), pace(2, 0.5), pace(4, 0.25), pace(5, 0.4), pace(8, 0.125)]
    found = learned(paces, 8)
    assert [found[each.tasks - 1] for each in paces] == pytest.approx([1 / p.seconds for p in paces])
    assert found[5] < 1 / (1 / 6)


def test_many_steps_count_for_as_many() -> None:
    assert learned([pace(1, 1.0, 9), pace(1, 2.0, 1)], 1) == pytest.approx((1 / 1.1,))


def test_jobs_of_one_application_share_what_they_have_seen() -> None:
    """The other's machines were half as fast: so are its larger sizes, for this one."""
    others = [pace(1, 2.0), pace(2, 1.2), pace(4, 0.8)]
    assert shared([], others) == others
    assert shared([pace(1, 1.0)], others) == [pace(1, 1.0), pace(2, 0.6), pace(4, 0.4)]
    assert learned(shared([pace(1, 1.0)], others), 8)[3] == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("tasks", "seconds", "steps", "words"),
    [
        (0, 1.0, 1, "with 0 tasks"),
        (1, 0.0, 1, "did not take 0 s"),
        (1, -1.0, 1, "did not take -1 s"),
        (1, math.nan, 1, "did not take nan s"),
        (1, math.inf, 1, "did not take inf s"),
        (2, 1.0, 0, "0 steps"),
    ],
)
def test_what_no_step_can_be_is_told(tasks: int, seconds: float, steps: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pace(tasks, seconds, steps)


def test_beyond_what_is_sure_each_task_gains_something() -> None:
    assert hopeful((1, 2, 1, 1), least=1, sure=4) == (1, 2, 1, 1)
    assert hopeful((1, 2, 1, 1), least=1, sure=2) == pytest.approx((1, 2, 2.02, 2.0402))
    assert hopeful((1, 2, 1, 1), least=1, sure=3) == pytest.approx((1, 2, 1, 1.01))
    assert hopeful((3, 2, 1, 4), least=2, sure=0) == pytest.approx((2 / 1.01, 2, 2.02, 4))
    assert hopeful((1, 2), least=4, sure=8) == (1, 2)
    assert hopeful((), least=1, sure=0) == ()


def test_who_is_slower_with_more_is_told_with_how_many_it_is_fastest() -> None:
    found = slower_with_more((1, 3, 2, 2.02), sure=3)
    assert found == Slower(best=2, speed=3, most=3, with_most=2)
    assert slower_with_more((1, 3, 2, 3.1), sure=3) is None, "four may be faster still"
    assert slower_with_more((1, 2, 3), sure=3) is None
    assert slower_with_more((1, 3), sure=3) is None
    assert slower_with_more((), sure=0) is None
