from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from shoal.background import reports
from shoal.clock import SystemClock
from shoal.control.lease import AlwaysLeader, NotLeader
from shoal.control.runner import Backoff, Key, Runner, Source
from shoal.objects.errors import Conflict, Unavailable
from shoal.testing.clock import VirtualClock

A, B = ("n", "a"), ("n", "b")


class Feed:
    """A cache that the test fills."""

    name = "feed"

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.synced = True
        self.pending: list[Key] = []
        self.callbacks: list[Callable] = []
        self.error: Exception | None = None
        self.closed = False

    def push(self, *keys: Key) -> None:
        self.pending += keys
        self.ready.set()

    def sync(self) -> bool:
        self.ready.clear()
        if self.error is not None:
            raise self.error
        keys, self.pending = self.pending, []
        for key in keys:
            for callback in self.callbacks:
                callback(None, key)
        return bool(keys)

    def sync_after(self) -> float:
        return 5.0

    def on_change(self, callback: Callable) -> None:
        self.callbacks.append(callback)

    def close(self) -> None:
        self.closed = True


class Recorder:
    """A controller that notes its calls and does what the test says."""

    name = "recorder"

    def __init__(self, feed: Feed, answer: Callable[[Key], float | None] = lambda key: None) -> None:
        self.feed = feed
        self.answer = answer
        self.calls: list[str] = []

    def sources(self):
        return (Source(self.feed, lambda old, new: [new]),)

    def reconcile(self, key: Key, now: float) -> float | None:
        self.calls.append(key[1])
        return self.answer(key)


def make(answer: Callable[[Key], float | None] = lambda key: None, guard=None):
    clock, feed = VirtualClock(), Feed()
    recorder = Recorder(feed, answer)
    runner = Runner([(recorder, 1)], clock=clock, guard=guard or AlwaysLeader(), backoff=Backoff(1, 8))
    return clock, feed, recorder, runner


def raising(*errors: Exception | None) -> Callable[[Key], float | None]:
    left = list(errors)

    def answer(key: Key) -> None:
        error = left.pop(0) if left else None
        if error is not None:
            raise error

    return answer


def test_changes_are_reconciled_in_order_once_each():
    _, feed, recorder, runner = make()
    feed.push(B, A, B)
    assert runner.run_once() == 2
    assert recorder.calls == ["b", "a"]
    assert runner.run_once() == 0


def test_nothing_runs_before_every_cache_has_listed():
    _, feed, recorder, runner = make()
    feed.synced = False
    feed.push(A)
    runner.run_once()
    assert recorder.calls == []
    feed.synced = True
    runner.run_once()
    assert recorder.calls == ["a"]


def test_a_controller_is_called_again_when_it_asked_to_be():
    clock, feed, recorder, runner = make(lambda key: 3.0 if key == A else None)
    feed.push(A, B)
    runner.run_once()
    assert runner.next_due() == 3
    clock.advance(3)
    runner.run_once()
    assert recorder.calls == ["a", "b", "a"]


def test_a_change_during_a_call_is_not_put_off_to_when_the_call_asked_for():
    clock, feed = VirtualClock(), Feed()

    class Delayed(Recorder):
        def sources(self):
            return (Source(self.feed, lambda old, new: [new], 0.1),)

        def reconcile(self, key: Key, now: float) -> float | None:
            if not self.calls:
                self.feed.push(key)
                self.feed.sync()
            return super().reconcile(key, now)

    recorder = Delayed(feed, lambda key: 5.0)
    runner = Runner([(recorder, 1)], clock=clock, guard=AlwaysLeader())
    feed.push(A)
    runner.run_once()
    clock.advance(0.2)
    runner.run_once()
    assert recorder.calls == ["a"]
    clock.advance(0.2)
    runner.run_once()
    assert recorder.calls == ["a", "a"]


def test_errors_back_off_and_the_others_go_on(caplog):
    clock, feed, recorder, runner = make(raising(ValueError("no"), None, ValueError("no"), None))
    feed.push(A, B)
    with caplog.at_level(logging.INFO, "shoal.control"):
        runner.run_once()
        assert recorder.calls == ["a", "b"]
        failure = runner.failures()[0]
        assert (failure.source, failure.key, failure.error) == ("recorder", A, "ValueError: no")
        first = runner.next_due()
        assert 0.75 <= first <= 1.25
        clock.advance(first)
        runner.run_once()
        assert runner.failures()[0].count == 2
        second = runner.next_due()
        assert 1.5 <= second <= 2.5
        clock.advance(second)
        runner.run_once()
    assert runner.failures() == ()
    logged = [record.message for record in caplog.records]
    assert logged == ["recorder n/a failed: ValueError: no", "recorder n/a works again after 2 failures"]


def test_backoff_is_bounded_and_repeatable():
    backoff = Backoff(0.1, 10)
    waits = [backoff.after(n, "seed") for n in range(1, 40)]
    assert waits == [backoff.after(n, "seed") for n in range(1, 40)]
    assert max(waits) <= 12.5
    assert waits[0] < 0.126
    assert backoff.after(3, "seed") != backoff.after(3, "other")


def test_a_conflict_is_answered_at_once_but_not_for_ever():
    _, feed, recorder, runner = make(raising(*[Conflict("changed")] * 2))
    feed.push(A)
    runner.run_once()
    assert recorder.calls == ["a"] * 3
    assert runner.failures() == ()

    _, feed, recorder, runner = make(raising(*[Conflict("changed")] * 50))
    feed.push(A)
    runner.run_once()
    assert recorder.calls == ["a"] * 6
    assert runner.failures()[0].error == "Conflict: changed"


def test_a_cache_that_cannot_be_filled_is_a_failure_until_it_can():
    _, feed, _, runner = make()
    feed.error = Unavailable("no answer")
    runner.run_once()
    assert [(f.source, f.error) for f in runner.failures()] == [("cache-feed", "Unavailable: no answer")]
    feed.error = None
    runner.run_once()
    assert runner.failures() == ()


def test_controllers_that_chase_each_other_are_found_out():
    feed = Feed()
    chaser = Recorder(feed, lambda key: feed.push(key))
    runner = Runner([(chaser, 1)], clock=VirtualClock(), guard=AlwaysLeader())
    feed.push(A)
    with pytest.raises(RuntimeError, match="not settled after 50"):
        runner.run_once(patience=50)


def test_all_controllers_get_their_turn():
    clock, first, second = VirtualClock(), Feed(), Feed()
    order: list[str] = []

    class Named(Recorder):
        def __init__(self, name: str, feed: Feed) -> None:
            super().__init__(feed)
            self.name = name

        def reconcile(self, key: Key, now: float) -> None:
            order.append(f"{self.name}{key[1]}")

    runner = Runner([(Named("x", first), 1), (Named("y", second), 1)], clock=clock, guard=AlwaysLeader())
    first.push(A, B)
    second.push(A, B)
    runner.run_once()
    assert order == ["xa", "ya", "xb", "yb"]


class Sometimes:
    """A guard that the test opens and closes."""

    def __init__(self) -> None:
        self.open = False
        self.callbacks: list[Callable[[], None]] = []

    def enter(self) -> bool:
        return self.open

    def check(self) -> None:
        if not self.open:
            raise NotLeader("closed")

    def on_change(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


def test_keys_wait_for_leadership_and_survive_its_loss():
    guard = Sometimes()
    _, feed, recorder, runner = make(guard=guard)

    def lose(key: Key) -> None:
        if len(recorder.calls) == 1:
            guard.open = False
            guard.check()

    recorder.answer = lose
    feed.push(A)
    runner.run_once()
    assert recorder.calls == []
    guard.open = True
    runner.run_once()
    assert recorder.calls == ["a"]
    assert runner.failures() == ()
    guard.open = True
    runner.run_once()
    assert recorder.calls == ["a", "a"]


def test_threads_react_back_off_and_stop():
    feed, done = Feed(), threading.Event()

    def answer(key: Key) -> None:
        if len(recorder.calls) == 1:
            raise ValueError("first")
        done.set()

    recorder = Recorder(feed, answer)
    runner = Runner(
        [(recorder, 2)], clock=SystemClock(), guard=AlwaysLeader(), backoff=Backoff(0.01, 0.1)
    )
    runner.start()
    feed.push(A)
    assert done.wait(10)
    assert runner.stop(10)
    assert feed.closed
    assert recorder.calls == ["a", "a"]


def test_threads_start_working_when_leadership_is_won():
    feed, done, guard = Feed(), threading.Event(), Sometimes()
    recorder = Recorder(feed, lambda key: done.set())
    runner = Runner([(recorder, 1)], clock=SystemClock(), guard=guard)
    runner.start()
    feed.push(A)
    assert not done.wait(0.05)
    guard.open = True
    guard.callbacks[0]()
    assert done.wait(10)
    assert runner.stop(10)


def test_what_fails_again_and_again_is_reported_once_and_listed_until_it_works():
    clock, feed = VirtualClock(), Feed()
    recorder = Recorder(feed, raising(*[ValueError("bad spec")] * 7))
    reported = []
    runner = Runner(
        [(recorder, 1)],
        clock=clock,
        guard=AlwaysLeader(),
        backoff=Backoff(1, 1),
        on_failing=reported.append,
    )
    feed.push(A)
    for number in range(1, 8):
        runner.run_once()
        clock.advance(2)
        if number == 2:
            assert runner.failing() == () and reported == []
    assert [(failure.key, failure.count) for failure in reported] == [(A, 5)]
    assert "bad spec" in str(runner.failing()[0])
    runner.run_once()
    assert runner.failing() == () and len(reported) == 1


def test_an_exception_that_no_loop_expects_ends_no_thread():
    class Failing(Feed):
        failures = 0

        def sync_after(self) -> float:
            self.failures += 1
            if self.failures == 1:
                raise ZeroDivisionError("injected")
            return 0.01

    class Guard(AlwaysLeader):
        failures = 0

        def enter(self) -> bool:
            self.failures += 1
            if self.failures == 1:
                raise OverflowError("injected")
            return True

    feed, guard = Failing(), Guard()
    recorder = Recorder(feed)
    runner = Runner([(recorder, 1)], clock=SystemClock(), guard=guard)
    runner.start()
    try:
        feed.push(A)
        deadline = time.monotonic() + 20
        while not recorder.calls:
            assert time.monotonic() < deadline, "a thread has ended"
            time.sleep(0.01)
        restarts = {report.name: report.restarts for report in reports()}
        assert restarts[f"cache-{feed.name}"] == 1 and restarts[f"{recorder.name}-0"] == 1
    finally:
        assert runner.stop()
