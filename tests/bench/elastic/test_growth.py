from __future__ import annotations

import pytest
from bench.elastic.growth import growth
from bench.elastic.marks import Mark, Trace

MS = 1_000_000


def _trace(pid: int, steps: list[tuple[int, int, int]], imported: int = 0) -> Trace:
    marks = [Mark(step, at * MS, world, step - 1) for step, at, world in steps]
    return Trace(pid, str(pid), marks, {"imported": imported * MS})


def _member(switch: int) -> Trace:
    """20 ms a step; 30 ms while a newcomer loads from 200 to 500; the first step of all at `switch`."""
    calm = [(n, 20 * n, 2) for n in range(1, 11)]
    loading = [(10 + n, 200 + 30 * n, 2) for n in range(1, 11)]
    after = [(21 + n, switch + 40 * n, 4) for n in range(5)]
    return _trace(1, [*calm, *loading, *after])


def _newcomer(pid: int, switch: int) -> Trace:
    return _trace(pid, [(21 + n, switch + 40 * n, 4) for n in range(5)], imported=500)


def test_the_stall_is_the_step_at_the_switch_beyond_those_while_newcomers_loaded() -> None:
    found = growth([_member(600)], [_newcomer(2, 600), _newcomer(3, 605)], 200 * MS, warm=False)
    assert found.stall == pytest.approx(0.070)
    assert found.contributing == pytest.approx(0.105)
    assert found.step_before == pytest.approx(0.020)
    assert found.step_loading == pytest.approx(0.030)
    assert found.step_after == pytest.approx(0.040)
    assert found.redone == 0


def test_a_warm_standby_counts_from_its_leave() -> None:
    found = growth([_member(600)], [_newcomer(2, 600)], 500 * MS, warm=True)
    assert found.contributing == pytest.approx(0.100)


def test_where_all_are_restarted_the_stall_is_the_time_without_steps() -> None:
    old = [_trace(pid, [(n, 20 * n, 2) for n in range(1, 16)]) for pid in (1, 2)]
    new = [_trace(pid, [(11 + n, 2000 + 20 * n, 4) for n in range(5)], 1500) for pid in (3, 4, 5, 6)]
    found = growth(old, new, 200 * MS, warm=False)
    assert found.stall == pytest.approx(1.7)
    assert found.redone == 5
