"""Watching: order, resuming, bookmarks and Expired."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from shoal.objects.errors import Expired, ShoalError, VersionSkew
from shoal.objects.kinds import JOB, QUEUE
from shoal.objects.meta import Metadata
from shoal.objects.queue import Queue
from shoal.store.backend import Window
from shoal.store.base import SYSTEM, Event, Store
from shoal.testing.clock import VirtualClock
from shoal.testing.store.harness import (
    DEADLINE_SECONDS,
    Rules,
    StoreHarness,
    collect,
    job,
    needs,
    newer_job,
    opened,
    start_of,
)
from shoal.testing.store.status import patch
from shoal.testing.store.writes import edited

__all__ = ["WatchRules"]


class WatchRules(Rules):
    """Rules of `watch`."""

    def test_every_change_comes_in_order(self, store: Store) -> None:
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        made = store.create(job("a"), actor=SYSTEM)
        labelled = store.update(edited(made, labels={"x": "1"}), actor=SYSTEM)
        patched = patch(store, made, 0, {"phase": "Running"})
        store.delete(JOB, "default", "a", actor=SYSTEM)
        events = collect(watch, 4)
        assert [event.type for event in events] == ["Added", "Modified", "Modified", "Deleted"]
        assert [event.record and event.record.object for event in events[:3]] == [
            made, labelled, patched.object,
        ]  # fmt: skip
        assert [event.record and event.record.object.metadata.uid for event in events] == (
            [made.metadata.uid] * 4
        )
        watch.close()

    def test_each_event_carries_its_objects_version(self, store: Store) -> None:
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        store.create(job("a"), actor=SYSTEM)
        store.delete(JOB, "default", "a", actor=SYSTEM)
        events = collect(watch, 2)
        for event in events:
            assert event.record is not None
            assert event.record.object.metadata.resource_version == event.version
        watch.close()

    @needs("newer")
    def test_an_object_that_cannot_be_decoded_is_carried_as_its_document(self, store: Store) -> None:
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        store.create(job("a"), actor=SYSTEM)
        made = store.create(newer_job("b"), actor=SYSTEM)
        store.create(job("c"), actor=SYSTEM)
        listed = store.list(JOB, actor=SYSTEM).records
        store.delete(JOB, "default", "b", actor=SYSTEM)
        events = collect(watch, 4)
        records = [event.record for event in events if event.record is not None]
        assert [record.identity.name for record in listed] == ["a", "b", "c"]
        assert [record.identity.name for record in records] == ["a", "b", "c", "b"]
        with pytest.raises(VersionSkew, match="quantum"):
            _ = listed[1].object
        meta = made.metadata
        assert listed[1].identity == ("default", "b", meta.uid, meta.resource_version)
        watch.close()

    def test_a_watch_is_of_one_kind_and_namespace(self, store: Store) -> None:
        version = start_of(store)
        everywhere = store.watch(JOB, actor=SYSTEM, version=version)
        here = store.watch(JOB, actor=SYSTEM, version=version, namespace="here")
        queues = store.watch(QUEUE, actor=SYSTEM, version=version)
        store.create(job("a", "here"), actor=SYSTEM)
        store.create(job("b", "there"), actor=SYSTEM)
        store.create(Queue(metadata=Metadata(name="q")), actor=SYSTEM)
        assert len(collect(everywhere, 2)) == 2
        assert seen(collect(here, 1)) == ["a"]
        assert seen(collect(queues, 1)) == ["q"]
        for watch in (everywhere, here, queues):
            watch.close()

    def test_a_watch_resumes_after_any_version_it_has_seen(self, store: Store) -> None:
        start = start_of(store)
        first = store.watch(JOB, actor=SYSTEM, version=start)
        for number in range(10):
            store.create(job(f"j{number}"), actor=SYSTEM)
        events = collect(first, 10)
        first.close()
        for position, event in enumerate(events):
            resumed = store.watch(JOB, actor=SYSTEM, version=event.version)
            assert collect(resumed, len(events) - position - 1) == events[position + 1 :]
            resumed.close()

    def test_a_watch_may_start_at_an_objects_version(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        store.create(job("b"), actor=SYSTEM)
        watch = store.watch(JOB, actor=SYSTEM, version=made.metadata.resource_version)
        assert seen(collect(watch, 1)) == ["b"]
        watch.close()

    def test_poll_does_not_wait_and_wait_ends(self, store: Store) -> None:
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        assert watch.poll() == []
        assert watch.wait(0.01) == []
        watch.close()

    def test_wait_ends_with_the_first_event(self, store: Store) -> None:
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        found: list[Event] = []
        thread = threading.Thread(target=lambda: found.extend(watch.wait(DEADLINE_SECONDS)), daemon=True)
        thread.start()
        store.create(job("a"), actor=SYSTEM)
        thread.join(DEADLINE_SECONDS)
        assert seen(found) == ["a"]
        watch.close()

    def test_on_ready_calls_when_there_is_something(self, store: Store) -> None:
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        ready = threading.Event()
        watch.on_ready(ready.set)
        store.create(job("a"), actor=SYSTEM)
        assert ready.wait(DEADLINE_SECONDS)
        assert seen(collect(watch, 1)) == ["a"]
        ready.clear()
        store.create(job("b"), actor=SYSTEM)
        assert ready.wait(DEADLINE_SECONDS)
        watch.close()

    def test_on_ready_calls_for_what_is_there_already(self, store: Store) -> None:
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        store.create(job("a"), actor=SYSTEM)
        ready = threading.Event()
        watch.on_ready(ready.set)
        assert ready.wait(DEADLINE_SECONDS)
        watch.close()

    @pytest.mark.slow
    def test_a_reader_that_is_woken_drains_what_there_is(self, store: Store) -> None:
        """Polling only when woken misses nothing, however much came at once."""
        for number in range(550):
            store.create(job(f"j{number}"), actor=SYSTEM)
        start = store.list(JOB, actor=SYSTEM, limit=1)
        watch = store.watch(JOB, actor=SYSTEM, version=start.version)
        ready = threading.Event()
        watch.on_ready(ready.set)
        for number in range(550):
            store.delete(JOB, "default", f"j{number}", actor=SYSTEM)
        count = 0
        while count < 550:
            assert ready.wait(DEADLINE_SECONDS), count
            ready.clear()
            count += len([event for event in watch.poll() if event.record])
        watch.close()

    def test_one_readers_fault_is_its_own(self, store: Store) -> None:
        start = start_of(store)
        bad = store.watch(JOB, actor=SYSTEM, version=start)
        good = store.watch(JOB, actor=SYSTEM, version=start)

        def fail() -> None:
            raise RuntimeError("this reader is gone")

        bad.on_ready(fail)
        store.create(job("a"), actor=SYSTEM)
        assert seen(collect(good, 1)) == ["a"]
        bad.close()
        good.close()

    def test_a_closed_watch_is_silent(self, store: Store) -> None:
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        ready = threading.Event()
        watch.on_ready(ready.set)
        watch.close()
        watch.close()
        store.create(job("a"), actor=SYSTEM)
        assert not ready.is_set()
        assert watch.poll() == []

    def test_closing_the_store_ends_its_watches(self, harness: StoreHarness) -> None:
        with opened(harness) as store:
            watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        with pytest.raises(ShoalError):
            watch.wait(DEADLINE_SECONDS)
        watch.close()

    def test_versions_that_were_never_given_are_expired(self, store: Store) -> None:
        for version in ("", "nonsense", "0", "99999999", start_of(store) + "9999999"):
            with pytest.raises(Expired):
                store.watch(JOB, actor=SYSTEM, version=version)

    @needs("window")
    def test_a_version_before_the_window_is_expired(self, harness: StoreHarness) -> None:
        with opened(harness, window=Window(count=10)) as store:
            start = start_of(store)
            for number in range(40):
                store.create(job(f"j{number}"), actor=SYSTEM)
            eventually_expired(lambda: store.watch(JOB, actor=SYSTEM, version=start))
            near = store.record(JOB, "default", "j36", actor=SYSTEM).object.metadata.resource_version
            watch = store.watch(JOB, actor=SYSTEM, version=near)
            assert seen(collect(watch, 3)) == ["j37", "j38", "j39"]
            watch.close()

    @needs("window", "lagging")
    def test_a_slow_watch_expires_and_misses_nothing_before(self, harness: StoreHarness) -> None:
        with opened(harness, window=Window(count=10)) as store:
            watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
            for number in range(100):
                store.create(job(f"j{number}"), actor=SYSTEM)
            found: list[str] = []
            deadline = time.monotonic() + DEADLINE_SECONDS
            with pytest.raises(Expired):
                while time.monotonic() < deadline:
                    found += seen(watch.poll())
            assert found == [f"j{number}" for number in range(len(found))]
            assert len(found) < 100
            with pytest.raises(Expired):
                watch.poll()
            watch.close()

    @needs("window")
    def test_the_window_is_bounded_in_bytes(self, harness: StoreHarness) -> None:
        with opened(harness, window=Window(bytes=20_000)) as store:
            start = start_of(store)
            for number in range(20):
                store.create(job(f"j{number}", annotations={"big": "x" * 4000}), actor=SYSTEM)
            eventually_expired(lambda: store.watch(JOB, actor=SYSTEM, version=start))

    @needs("window", "clock")
    def test_the_window_is_bounded_in_age(self, harness: StoreHarness) -> None:
        clock = VirtualClock()
        with opened(harness, clock=clock, window=Window(age_seconds=60.0)) as store:
            start = start_of(store)
            store.create(job("old"), actor=SYSTEM)
            clock.advance(61.0)
            middle = start_of(store)
            store.create(job("new"), actor=SYSTEM)
            store.create(job("newer"), actor=SYSTEM)
            eventually_expired(lambda: store.watch(JOB, actor=SYSTEM, version=start))
            watch = store.watch(JOB, actor=SYSTEM, version=middle)
            assert seen(collect(watch, 2)) == ["new", "newer"]
            watch.close()

    @needs("window")
    def test_bookmarks_carry_a_quiet_watch_along(self, harness: StoreHarness) -> None:
        """Without them the watch of a kind that seldom changes could not be resumed."""
        with opened(harness, window=Window(count=16)) as store:
            start = start_of(store, QUEUE)
            watch = store.watch(QUEUE, actor=SYSTEM, version=start)
            ready = threading.Event()
            watch.on_ready(ready.set)
            last = ""
            for number in range(100):
                store.create(job(f"j{number}"), actor=SYSTEM)
                if ready.is_set():
                    ready.clear()
                    for event in watch.poll():
                        assert (event.type, event.record) == ("Bookmark", None)
                        last = event.version
            watch.close()
            assert last
            eventually_expired(lambda: store.watch(QUEUE, actor=SYSTEM, version=start))
            resumed = store.watch(QUEUE, actor=SYSTEM, version=last)
            store.create(Queue(metadata=Metadata(name="q")), actor=SYSTEM)
            assert seen(collect(resumed, 1)) == ["q"]
            resumed.close()

    @needs("durable")
    def test_a_watch_resumes_in_a_store_that_was_opened_again(self, harness: StoreHarness) -> None:
        with opened(harness) as store:
            start = start_of(store)
            watch = store.watch(JOB, actor=SYSTEM, version=start)
            store.create(job("a"), actor=SYSTEM)
            store.create(job("b"), actor=SYSTEM)
            events = collect(watch, 2)
        with opened(harness) as store:
            resumed = store.watch(JOB, actor=SYSTEM, version=start)
            assert collect(resumed, 2) == events
            store.create(job("c"), actor=SYSTEM)
            assert seen(collect(resumed, 1)) == ["c"]
            resumed.close()

    @needs("shared")
    def test_a_watch_tells_what_another_store_writes(self, harness: StoreHarness) -> None:
        with opened(harness) as one, opened(harness) as two:
            watch = one.watch(JOB, actor=SYSTEM, version=start_of(one))
            ready = threading.Event()
            watch.on_ready(ready.set)
            two.create(job("a"), actor=SYSTEM)
            assert ready.wait(DEADLINE_SECONDS)
            one.create(job("b"), actor=SYSTEM)
            two.create(job("c"), actor=SYSTEM)
            assert seen(collect(watch, 3)) == ["a", "b", "c"]
            watch.close()


def seen(events: list[Event]) -> list[str]:
    """The names in the events."""
    return [event.record.object.metadata.name for event in events if event.record]


def eventually_expired(attempt: Callable[[], object]) -> None:
    """A store may trim its window a little after the write that fills it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    with pytest.raises(Expired):
        while time.monotonic() < deadline:
            attempt()
