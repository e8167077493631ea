from __future__ import annotations

import logging
import threading
import time

import pytest

from shoal.background import Backoff, SupervisedThread, reports
from shoal.testing.clock import VirtualClock

QUICK = Backoff(first_seconds=0.001, most_seconds=0.01)


def until(condition, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_target_that_raises_is_called_again_and_counted(caplog) -> None:
    stopping, calls = threading.Event(), []

    def target() -> None:
        calls.append(1)
        if len(calls) <= 3:
            raise KeyError("nodes")
        stopping.wait()

    thread = SupervisedThread("sampler", target, stopping, backoff=QUICK)
    with caplog.at_level(logging.ERROR, "shoal.background"):
        thread.start()
        until(lambda: len(calls) == 4)
    mine = next(report for report in reports() if report.name == "sampler")
    assert mine.restarts == 3
    assert mine.error == "KeyError: 'nodes'"
    assert mine.since > 0
    assert len(caplog.records) == 1, "the same error is logged once"
    stopping.set()
    thread.join(10)
    assert not thread.is_alive()
    assert "sampler" not in {report.name for report in reports()}


def test_a_target_that_returns_ends_the_thread() -> None:
    thread = SupervisedThread("once", lambda: None, threading.Event())
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert thread.report().restarts == 0


def test_stopping_ends_the_pause_before_a_restart() -> None:
    stopping = threading.Event()

    def target() -> None:
        raise ValueError("never")

    thread = SupervisedThread("slow", target, stopping, backoff=Backoff(3600.0, 3600.0))
    thread.start()
    until(lambda: thread.report().restarts == 1)
    stopping.set()
    thread.join(10)
    assert not thread.is_alive()


def test_an_error_is_over_once_the_target_has_run_steadily() -> None:
    clock, stopping, calls = VirtualClock(), threading.Event(), []
    running = threading.Event()

    def target() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("once")
        running.set()
        stopping.wait()

    thread = SupervisedThread("follower", target, stopping, clock=clock, backoff=Backoff(0.0, 0.0))
    thread.start()
    assert running.wait(10)
    assert thread.report().error == "OSError: once"
    clock.advance(11)
    assert (thread.report().error, thread.report().restarts) == ("", 1)
    stopping.set()
    thread.join(10)


@pytest.mark.parametrize(("failures", "least", "most"), [(1, 0.03, 0.07), (4, 0.3, 0.5), (99, 22, 38)])
def test_pauses_double_up_to_a_bound(failures: int, least: float, most: float) -> None:
    assert least <= Backoff().after(failures, "x") <= most
