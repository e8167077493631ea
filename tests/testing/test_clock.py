from __future__ import annotations

import threading

import pytest

from shoal.testing.clock import VirtualClock


def test_time_passes_only_when_told():
    clock = VirtualClock(1000.0)
    assert (clock.now(), clock.monotonic()) == (1000.0, 0.0)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (1002.5, 2.5)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_the_wall_may_jump_and_the_monotonic_clock_does_not_notice():
    clock = VirtualClock(1000.0)
    clock.advance(1)
    clock.set_wall(10.0)
    clock.advance(1)
    assert (clock.now(), clock.monotonic()) == (11.0, 2.0)


def test_callbacks_run_at_their_moment_in_order():
    clock = VirtualClock(0.0)
    seen: list[tuple[str, float]] = []
    clock.at(2, lambda: seen.append(("late", clock.monotonic())))
    clock.at(
        1,
        lambda: (
            seen.append(("early", clock.monotonic())),
            clock.at(0.5, lambda: seen.append(("nested", clock.monotonic()))),
        ),
    )
    clock.at(1, lambda: seen.append(("second", clock.monotonic())))
    assert clock.next_timer() == 1
    clock.advance(1.9)
    clock.advance(0.1)
    assert seen == [("early", 1), ("second", 1), ("nested", 1.5), ("late", 2)]
    assert clock.next_timer() is None


def test_a_waiting_thread_wakes_at_its_deadline_and_not_before():
    clock = VirtualClock()
    result: list[bool] = []
    thread = threading.Thread(target=lambda: result.append(clock.wait(threading.Event(), 5)))
    thread.start()
    clock.until_waiting(1)
    clock.advance(4.9)
    assert clock.waiting() == 1 and not result
    clock.advance(0.1)
    thread.join(10)
    assert result == [False]


def test_a_waiting_thread_wakes_when_its_event_is_set():
    clock = VirtualClock()
    event = threading.Event()
    result: list[bool] = []
    thread = threading.Thread(target=lambda: result.append(clock.wait(event, 5)))
    thread.start()
    clock.until_waiting(1)
    event.set()
    thread.join(10)
    assert result == [True]
    assert clock.monotonic() == 0


def test_an_automatic_clock_passes_the_time_of_every_wait():
    clock = VirtualClock(auto=True)
    assert clock.wait(threading.Event(), 3) is False
    assert clock.monotonic() == 3


def test_waiting_for_threads_that_do_not_come_is_an_error():
    with pytest.raises(TimeoutError, match="0 of 1"):
        VirtualClock().until_waiting(1, timeout_seconds=0.01)
