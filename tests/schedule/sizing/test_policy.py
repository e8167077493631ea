"""Shoal's policy by itself: sizes from outlooks, where others place."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.schedule.allot import Contender, Outlook
from shoal.schedule.sizing.curves import every_size
from shoal.schedule.sizing.policy import Elastic
from shoal.schedule.sizing.seen import Seen


def contender(
    name: str,
    *,
    remaining: float | None,
    done: float = 0.0,
    least: int = 1,
    power: float = 0.7,
    submitted: float = 0.0,
) -> Contender:
    def speeds(_: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        return sizes.astype(np.float64) ** power

    def unasked(_: int = 0) -> float:
        raise AssertionError("an oracle was asked")

    return Contender(
        name=name,
        submitted=submitted,
        size=16,
        least=least,
        most=16,
        run_seconds=unasked,
        step_seconds=unasked,
        steps_left=unasked,
        outlook=Outlook(speeds=speeds, most=16, limit=16, done=done, remaining=remaining),
    )


def sizes(*jobs: Contender, nodes: int = 4, live: bool = True) -> list[int]:
    policy = Elastic(live=live)
    if not live:
        return policy.sizes(jobs, [4] * nodes).tolist()
    return policy.chosen(Seen.of(jobs, every_size(4, 4 * nodes), 4), 4 * nodes).tolist()


def test_nobody_has_less_than_its_least() -> None:
    """Though it would have much less by its weight; and what is no size of the grid is one then."""
    jobs = [contender("a", remaining=1e6, least=7), contender("b", remaining=10.0)]
    for live in (True, False):
        large, small = sizes(*jobs, live=live)
        assert large >= 7 and small >= 1
        assert large + small <= 16
    assert sorted(sizes(*(contender(name, remaining=50.0, least=5) for name in "abc"))) == [5, 5, 6]


def test_more_than_there_is_cannot_be_needed() -> None:
    with pytest.raises(ValueError, match="18 GPUs are needed, and there are 16"):
        sizes(*(contender(name, remaining=50.0, least=6) for name in "abc"))


def test_one_who_says_nothing_does_not_take_from_others_what_they_say() -> None:
    """It counts as one in the middle, or as one that has as much before it as behind it."""
    short, long = contender("short", remaining=100.0), contender("long", remaining=9000.0)
    middle = contender("middle", remaining=4550.0)
    silent = contender("silent", remaining=None)
    assert sizes(short, long, silent) == sizes(short, long, middle)
    older, as_much = (
        contender("older", remaining=None, done=20_000.0),
        contender("as-much", remaining=20_000.0, done=20_000.0),
    )
    assert sizes(short, long, older) == sizes(short, long, as_much)


def test_where_nobody_says_anything_work_done_decides() -> None:
    young, old = contender("young", remaining=None), contender("old", remaining=None, done=1e6)
    first, second = sizes(young, old)
    assert first > second >= 1


def test_of_two_long_ones_of_which_nobody_says_anything_the_older_is_first():
    """However much each has done."""
    for done in (1e5, 1e6):
        older = contender("older", remaining=None, done=done)
        younger = contender("younger", remaining=None, done=2e5, submitted=60.0)
        first, second = sizes(older, younger)
        assert first > second >= 1
