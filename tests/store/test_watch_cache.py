from __future__ import annotations

import pytest

from shoal.objects.errors import Expired, Unavailable
from shoal.objects.kinds import JOB, QUEUE
from shoal.store.backend import Step, Window, version_text
from shoal.store.base import Event, Watch
from shoal.store.watch_cache import WatchCache
from shoal.testing.clock import VirtualClock


class Table:
    """Older steps, as a database would keep them."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.floor = 0
        self.asked = 0

    def __call__(self, kind: str, namespace: str, after: int, limit: int) -> tuple[list[Step], int]:
        self.asked += 1
        if after < self.floor:
            raise Expired("gone")
        found = [step for step in self.steps if step.kind == kind and step.revision > after][:limit]
        full = len(found) == limit
        return found, (found[-1].revision if found and full else max(after, self.head))

    @property
    def head(self) -> int:
        return self.steps[-1].revision if self.steps else 0


def step(revision: int, kind: str = "Job", namespace: str = "default", size: int = 2) -> Step:
    return Step(revision, "Added", kind, namespace, b"x" * size)


def make(table: Table | None = None, clock: VirtualClock | None = None, **bounds: int) -> WatchCache:
    window = Window(**bounds)
    return WatchCache(
        epoch="e", window=window, clock=clock or VirtualClock(), older=table, memory=window
    )


def tell(cache: WatchCache, *steps: Step) -> None:
    for each in steps:
        for watch in cache.extend(each.revision - 1, [each], each.revision):
            watch.wake()


def open_watch(cache: WatchCache, revision: int = 0, kind: str = "Job") -> Watch:
    return cache.watch(
        JOB if kind == "Job" else QUEUE, "", version_text("e", revision), lambda: cache.head
    )


def revisions(events: list[Event]) -> list[int]:
    return [int(event.version.rpartition(".")[2]) for event in events]


def test_what_memory_no_longer_has_comes_from_the_table() -> None:
    table = Table()
    cache = make(table, count=4)
    watch = open_watch(cache)
    table.steps = [step(number) for number in range(1, 11)]
    tell(cache, *table.steps)
    assert cache.compacted_revision == 6
    assert revisions(watch.poll()) == list(range(1, 11))
    assert table.asked == 1
    tell(cache, step(11))
    assert revisions(watch.poll()) == [11]
    assert table.asked == 1


def test_what_another_process_wrote_is_read_from_the_table() -> None:
    table = Table()
    cache = make(table, count=100)
    watch = open_watch(cache)
    woken: list[int] = []
    watch.on_ready(lambda: woken.append(1))
    table.steps = [step(number) for number in range(1, 4)]
    cache.skip_to(3)
    assert woken == [1]
    assert revisions(watch.poll()) == [1, 2, 3]
    cache.skip_to(2)
    assert woken == [1]
    assert watch.poll() == []


def test_own_writes_after_anothers_are_told_in_order() -> None:
    """The cache hears of revision 5 before it has heard of 4, which another process wrote."""
    table = Table()
    cache = make(table, count=100)
    watch = open_watch(cache)
    tell(cache, step(1), step(2), step(3))
    table.steps = [step(number) for number in range(1, 6)]
    assert cache.extend(4, [step(5)], 5) == [watch]
    assert revisions(watch.poll()) == [1, 2, 3, 4, 5]
    assert cache.extend(4, [step(5)], 5) == []
    assert watch.poll() == []


def test_a_portion_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.store.watch_cache._PORTION", 3)
    cache = make(count=100)
    watch = open_watch(cache)
    tell(cache, *(step(number) for number in range(1, 8)))
    woken: list[int] = []
    watch.on_ready(lambda: woken.append(1))
    assert [revisions(watch.poll()) for _ in range(4)] == [[1, 2, 3], [4, 5, 6], [7], []]
    assert len(woken) == 3


def test_a_watch_is_woken_for_its_own_kind_and_namespace_only() -> None:
    cache = make(count=10_000)
    watch = cache.watch(JOB, "here", version_text("e", 0), lambda: 0)
    woken: list[int] = []
    watch.on_ready(lambda: woken.append(1))
    tell(cache, step(1, "Queue", ""), step(2, "Job", "there"))
    assert woken == []
    tell(cache, step(3, "Job", "here"))
    assert woken == [1]


def test_a_bookmark_comes_with_time_too() -> None:
    clock = VirtualClock()
    cache = make(clock=clock, count=10_000)
    watch = open_watch(cache, kind="Queue")
    tell(cache, step(1), step(2))
    assert watch.poll() == []
    clock.advance(61)
    (event,) = watch.poll()
    assert (event.type, event.version) == ("Bookmark", "e.2")
    clock.advance(61)
    assert watch.poll() == []


def test_old_steps_go_by_count_bytes_and_age() -> None:
    clock = VirtualClock()
    cache = make(clock=clock, count=100, bytes=100)
    tell(cache, *(step(number, size=10) for number in range(1, 12)))
    assert cache.compacted_revision == 2
    clock.advance(3601)
    tell(cache, step(12))
    assert cache.compacted_revision == 11
    tell(cache, step(13, size=1000))
    assert cache.compacted_revision == 13


def test_steps_larger_than_the_window_leave_nothing_behind() -> None:
    cache = make(count=5)
    cache.extend(0, [step(number) for number in range(1, 51)], 50)
    assert (cache.compacted_revision, cache.head) == (45, 50)


def test_a_version_that_the_store_has_but_the_feed_does_not_yet() -> None:
    cache = make(Table(), count=5)
    watch = cache.watch(JOB, "", version_text("e", 3), lambda: 3)
    tell(cache, *(step(number) for number in range(1, 5)))
    assert revisions(watch.poll()) == [4]
    with pytest.raises(Expired):
        cache.watch(JOB, "", version_text("e", 9), lambda: 4)


def test_the_end() -> None:
    cache = make(count=5)
    watch = open_watch(cache)
    woken: list[int] = []
    watch.on_ready(lambda: woken.append(1))
    cache.close()
    assert woken == [1]
    with pytest.raises(Unavailable):
        watch.poll()
    with pytest.raises(Unavailable):
        open_watch(cache)
