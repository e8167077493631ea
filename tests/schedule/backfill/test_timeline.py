"""The earliest fit among many free stretches, and amounts taken and given back."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.backfill.grid import Grid
from shoal.schedule.backfill.timeline import Timeline
from tests.schedule.backfill.world import FOREVER

EXACT = Grid(0.0, 0)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_earliest_fit_is_found_behind_any_number_of_stretches_too_short(data):
    """Beyond the first few, stretches are searched all at once."""
    count = data.draw(st.integers(1, 400))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    free = np.repeat(random.integers(0, 3, (2, count)), 2, axis=1)
    times = np.cumsum(random.integers(1, 4, free.shape[1])).astype(np.float64)
    seconds = data.draw(st.sampled_from([1, 3, 9, 14, FOREVER]))
    since = float(data.draw(st.integers(int(times[0]), int(times[-1]) + 3)))
    grid = Grid(float(times[0]), data.draw(st.sampled_from([0, 2])))
    found = Timeline(times, free).earliest([(0, 1), (1, 2)], seconds, since, grid)

    def fits(start):
        low = np.searchsorted(times, start, side="right") - 1
        high = np.searchsorted(times, grid.up(start + seconds))
        return (free[0, low:high] >= 1).all() and (free[1, low:high] >= 2).all()

    expected = next(
        (start for start in [since, *times[times > since].tolist()] if fits(start)), math.inf
    )
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_has_its_place_finds_the_same_sooner_place_as_if_it_were_lifted_out(data):
    """Where there is none it stays where it is."""
    count = data.draw(st.integers(2, 200))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    free = np.repeat(random.integers(0, 3, (2, count)), 2, axis=1)
    times = np.cumsum(random.integers(1, 4, free.shape[1])).astype(np.float64)
    seconds = data.draw(st.sampled_from([1, 3, 9, 14, FOREVER]))
    since = float(data.draw(st.integers(int(times[0]), int(times[-1]))))
    grid = Grid(float(times[0]), data.draw(st.sampled_from([0, 2])))
    start = grid.up(since + data.draw(st.integers(1, 400)))
    end = grid.up(start + seconds)
    lifted, placed = Timeline(times, free), Timeline(times, free)
    needs = [(0, 1), (1, 2)]
    for each in (lifted, placed):
        each.take(needs, start, end, copies=-1)
    placed.take(needs, start, end)
    expected = lifted.earliest(needs, seconds, since, grid)
    assert placed.sooner(needs, seconds, since, start, grid) == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 3)), max_size=8))
def test_one_by_one_or_all_at_once_the_same_is_free(taken):
    empty = Timeline.empty(0.0, np.array([5]))
    starts = np.array([start for start, _, _ in taken], dtype=np.float64)
    ends = starts + np.array([seconds for _, seconds, _ in taken], dtype=np.float64)
    amounts = np.array([[amount] for _, _, amount in taken], dtype=np.int64).reshape(-1, 1)
    whole = empty.after(starts, ends, amounts)
    for start, seconds, amount in taken:
        empty.take([(0, amount)], start, start + seconds)
    assert (empty.times.tolist(), empty.free.tolist()) == (whole.times.tolist(), whole.free.tolist())
    for start, seconds, amount in taken:
        empty.take([(0, amount)], start, start + seconds, copies=-1)
    assert (empty.free == 5).all()


@given(st.floats(0, 1e7), st.floats(0, 1e6), st.sampled_from([1.0, 60.0, 0.25]))
def test_an_instant_rounded_as_time_passes_only_comes_nearer(ahead, passed, resolution):
    instant = 1.8e9 + ahead
    before, after = Grid(1.8e9, resolution), Grid(1.8e9 + passed, resolution)
    assert instant <= after.up(instant) <= before.up(instant)
    assert before.up(instant) - instant <= max(resolution, ahead / 128)
    assert before.all_up(np.array([instant, math.inf])).tolist() == [before.up(instant), math.inf]
