from __future__ import annotations

import pytest
from bench.elastic.marks import Mark, Trace
from bench.elastic.timeline import Harm, longest_gap, recovery, step_seconds

MS = 1_000_000


def _trace(pid: int, steps: list[tuple[int, int, int]], *, name: str = "") -> Trace:
    """Of (step, milliseconds, world)."""
    return Trace(pid, name, [Mark(step, at * MS, world, step - 1) for step, at, world in steps])


def _steps(first: int, count: int, at: int, world: int) -> list[tuple[int, int, int]]:
    return [(first + n, at + 20 * n, world) for n in range(count)]


def test_a_pause_ends_with_the_last_survivors_first_step_without_the_victim() -> None:
    traces = [
        _trace(1, [*_steps(1, 10, 0, 3), *_steps(11, 3, 300, 2)]),
        _trace(2, [*_steps(1, 10, 0, 3), *_steps(11, 3, 310, 2)]),
        _trace(3, _steps(1, 10, 0, 3)),
    ]
    found = recovery(traces, Harm(3, 190 * MS, 3))
    assert found is not None
    assert found.pause_seconds == pytest.approx(0.120)
    assert found.step_seconds == pytest.approx(0.020)
    assert found.lost_seconds == pytest.approx(0.100)
    assert (found.redone, found.discarded, found.skipped, found.restarted) == (0, 0, 0, 0)


def test_a_step_that_all_had_reduced_before_the_signal_does_not_end_the_pause() -> None:
    ahead = [*_steps(1, 10, 0, 2), (11, 195, 2), (12, 400, 1)]
    found = recovery([_trace(1, ahead), _trace(2, _steps(1, 10, 0, 2))], Harm(2, 190 * MS, 2))
    assert found is not None
    assert found.pause_seconds == pytest.approx(0.210)


def test_there_is_no_recovery_while_one_survivor_stands_still() -> None:
    traces = [
        _trace(1, [*_steps(1, 10, 0, 3), *_steps(11, 3, 300, 2)]),
        _trace(2, _steps(1, 10, 0, 3)),
        _trace(3, _steps(1, 10, 0, 3)),
    ]
    assert recovery(traces, Harm(3, 190 * MS, 3)) is None


def test_a_survivor_that_makes_a_step_again_and_one_that_skips_are_told() -> None:
    again = [*_steps(1, 10, 0, 2), (9, 300, 1), (10, 320, 1), (11, 340, 1)]
    found = recovery([_trace(1, again), _trace(2, _steps(1, 10, 0, 2))], Harm(2, 190 * MS, 2))
    assert found is not None and found.redone == 2
    jump = [*_steps(1, 10, 0, 2), (13, 300, 1)]
    found = recovery([_trace(1, jump), _trace(2, _steps(1, 10, 0, 2))], Harm(2, 190 * MS, 2))
    assert found is not None and found.skipped == 2


def test_passes_that_apply_nothing_count_until_the_pause_is_over() -> None:
    trace = _trace(1, [*_steps(1, 10, 0, 2), (11, 300, 1)])
    part = Mark(11, 250 * MS, 1, 10, applied=False)
    later = Mark(12, 310 * MS, 1, 11, applied=False)
    trace.marks = [*trace.marks[:-1], part, trace.marks[-1], later]
    found = recovery([trace, _trace(2, _steps(1, 10, 0, 2))], Harm(2, 190 * MS, 2))
    assert found is not None and found.discarded == 1


def test_a_job_that_restarts_has_gone_on_when_as_many_new_processes_have() -> None:
    before = [_trace(pid, _steps(1, 17, 0, 2)) for pid in (1, 2)]
    harm = Harm(2, 330 * MS, 2, replaced=True)
    one = [*before, _trace(3, _steps(11, 3, 3000, 2))]
    assert recovery(one, harm) is None
    found = recovery([*one, _trace(4, _steps(11, 3, 3010, 2))], harm)
    assert found is not None
    assert found.pause_seconds == pytest.approx(2.68)
    assert (found.redone, found.restarted) == (7, 1)


def test_without_a_replacement_one_process_less_must_go_on() -> None:
    before = [_trace(pid, _steps(1, 17, 0, 2)) for pid in (1, 2)]
    found = recovery([*before, _trace(3, _steps(11, 3, 3000, 1))], Harm(2, 330 * MS, 2))
    assert found is not None and found.restarted == 1


def test_workers_lost_earlier_are_no_survivors() -> None:
    long_gone = _trace(9, _steps(1, 10, -60_000, 2))
    traces = [long_gone, _trace(1, [*_steps(1, 10, 0, 2), (11, 300, 1)]), _trace(2, _steps(1, 10, 0, 2))]
    found = recovery(traces, Harm(2, 190 * MS, 2))
    assert found is not None and found.pause_seconds == pytest.approx(0.110)


def test_gaps() -> None:
    marks = _trace(1, [(1, 0, 1), (2, 20, 1), (3, 90, 1), (4, 110, 1)]).marks
    assert step_seconds(marks) == pytest.approx(0.020)
    assert step_seconds(marks[:1]) == 0.0
    assert longest_gap(marks, 0, 200 * MS) == pytest.approx(0.070)
    assert longest_gap(marks, 95 * MS, 200 * MS) == pytest.approx(0.020)
    assert longest_gap(marks, 50 * MS, 60 * MS) == pytest.approx(0.070)
    assert longest_gap(marks, 500 * MS, 600 * MS) == 0.0
