"""How watches learn of changes: the newest part of the window in memory, and a place in it per watch.

A watch holds no queue, only how far it has come. What it has not seen yet it takes from the cache's
steps, which all watches share, and when it has fallen behind those, from wherever older steps are
kept (`Older`: the events table of a database). So a slow watch costs no memory, and ends with
`Expired` exactly when what it missed is kept nowhere any more.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

from shoal.clock import Clock
from shoal.metrics import WATCHES
from shoal.objects.errors import Expired, Unavailable
from shoal.objects.kinds import Kind
from shoal.store.backend import Step, Window, read_version, version_text
from shoal.store.base import Event, Record

_LOG = logging.getLogger("shoal.store")
_PORTION = 500
"""Most steps that one `poll` returns."""


class Older(Protocol):
    """Reads steps that the cache no longer holds. Thread-safe."""

    def __call__(self, kind: str, namespace: str, after: int, limit: int) -> tuple[list[Step], int]:
        """At most `limit` steps after that revision, oldest first, and how far one has come with them.

        Raises:
            Expired: steps after that revision have been dropped.
        """
        ...


class WatchCache:
    """The newest steps of one store, and its watches. Thread-safe."""

    def __init__(
        self,
        *,
        epoch: str,
        window: Window,
        clock: Clock,
        head: int = 0,
        older: Older | None = None,
        memory: Window | None = None,
    ) -> None:
        """`memory` bounds what is held here, where `older` has the rest of the window."""
        self.epoch = epoch
        self._window = memory or window
        self._clock = clock
        self._older = older
        self._bookmarks = (max(1, window.count // 8), min(60.0, window.age_seconds / 4))
        self._lock = threading.Lock()
        self._steps: list[Step] = []
        self._times: list[float] = []
        self._bytes = 0
        self._compacted_revision = head
        self._head = head
        self._watches: set[CacheWatch] = set()
        self._closed = False

    @property
    def head(self) -> int:
        """The newest revision that watches can deliver."""
        return self._head

    @property
    def compacted_revision(self) -> int:
        """Steps up to this revision are no longer in memory."""
        return self._compacted_revision

    def extend(self, before: int, steps: list[Step], head: int) -> list[CacheWatch]:
        """Take in that a transaction took the store from revision `before` to `head`.

        The caller is to wake the watches returned, once it holds no lock that a reader may want.
        """
        with self._lock:
            if head <= self._head:
                return []
            if self._head != before:
                self._jump(head)
                return list(self._watches)
            self._extend(steps, head)
            touched = {(step.kind, step.namespace) for step in steps}
            return [watch for watch in self._watches if watch.concerned(touched, head)]

    def skip_to(self, head: int) -> None:
        """Another process has taken the store to `head`: watches are to look at the older steps."""
        with self._lock:
            if head <= self._head:
                return
            self._jump(head)
            wake = list(self._watches)
        for watch in wake:
            watch.wake()

    def watch(self, kind: Kind, namespace: str, version: str, newest: Callable[[], int]) -> CacheWatch:
        """A subscription to what comes after `version`.

        `newest` reads the store's newest revision, which the cache may be about to receive.

        Raises:
            Expired: that is too long ago.
        """
        position = read_version(version, self.epoch)
        if position > self._head and position > newest():
            raise Expired("this version is not one of this store's", hint="list again and compare")
        watch = CacheWatch(self, kind, namespace, position, self._clock, self._bookmarks)
        self.after(kind.name, namespace, position, 0)
        with self._lock:
            self._watches.add(watch)
        WATCHES.labels(kind.name).inc()
        return watch

    def watched(self) -> bool:
        """Whether anybody watches."""
        return bool(self._watches)

    def forget(self, watch: CacheWatch) -> None:
        """End a subscription."""
        with self._lock:
            known = watch in self._watches
            self._watches.discard(watch)
        if known:
            WATCHES.labels(watch.kind.name).dec()

    def after(self, kind: str, namespace: str, position: int, limit: int) -> tuple[list[Step], int]:
        """At most `limit` steps after `position`, and how far one has come with them.

        Raises:
            Expired: they are kept nowhere any more.
            Unavailable: the store has been closed.
        """
        with self._lock:
            if self._closed:
                raise Unavailable("the store has been closed")
            if position >= self._compacted_revision:
                return self._recent(kind, namespace, position, limit)
        if self._older is None:
            raise expired()
        steps, reached = self._older(kind, namespace, position, limit)
        return steps, max(reached, position)

    def close(self) -> None:
        """End every subscription with `Unavailable`."""
        with self._lock:
            self._closed = True
            wake = list(self._watches)
            self._watches.clear()
        for watch in wake:
            WATCHES.labels(watch.kind.name).dec()
            watch.wake()

    def _jump(self, head: int) -> None:
        self._steps.clear()
        self._times.clear()
        self._bytes = 0
        self._compacted_revision = self._head = head

    def _extend(self, steps: list[Step], head: int) -> None:
        self._steps += steps
        self._times += [self._clock.monotonic()] * len(steps)
        self._bytes += sum(len(step.document) for step in steps)
        self._head = head
        self._trim()

    def _trim(self) -> None:
        """In portions, so that the cost of moving the rest up is shared by many writes."""
        excess = len(self._steps) - self._window.count
        youngest_to_drop = self._clock.monotonic() - self._window.age_seconds
        if (
            excess < max(1, self._window.count // 10)
            and self._bytes <= self._window.bytes
            and not (self._times and self._times[0] < youngest_to_drop)
        ):
            return
        dropped = max(excess, bisect_right(self._times, youngest_to_drop))
        size = self._bytes - sum(len(step.document) for step in self._steps[:dropped])
        goal = self._window.bytes - self._window.bytes // 10 if size > self._window.bytes else size
        while size > goal:
            size -= len(self._steps[dropped].document)
            dropped += 1
        if not dropped:
            return
        self._compacted_revision = self._steps[dropped - 1].revision
        del self._steps[:dropped]
        del self._times[:dropped]
        self._bytes = size

    def _recent(self, kind: str, namespace: str, position: int, limit: int) -> tuple[list[Step], int]:
        found: list[Step] = []
        for index in range(bisect_right(self._steps, position, key=_revision), len(self._steps)):
            step = self._steps[index]
            if step.kind == kind and (not namespace or step.namespace == namespace):
                if len(found) == limit:
                    return found, found[-1].revision if found else position
                found.append(step)
        return found, max(self._head, position)


class CacheWatch:
    """See `shoal.store.base.Watch`."""

    def __init__(
        self,
        cache: WatchCache,
        kind: Kind,
        namespace: str,
        position: int,
        clock: Clock,
        bookmarks: tuple[int, float],
    ) -> None:
        """`bookmarks`: after how many revisions and seconds without an event one is due."""
        self._watch_cache = cache
        self.kind = kind
        self._namespace = namespace
        self._position = position
        self._delivered_revision = position
        self._delivered_at = clock.monotonic()
        self._clock = clock
        self._bookmark_revisions, self._bookmark_seconds = bookmarks
        self._ready = threading.Event()
        self._wake: Callable[[], None] | None = None
        self._closed = False

    def poll(self) -> list[Event]:
        if self._closed:
            return []
        self._ready.clear()
        steps, self._position = self._watch_cache.after(
            self.kind.name, self._namespace, self._position, _PORTION
        )
        if self._position < self._watch_cache.head:
            self.wake()
        events = [self._event(step) for step in steps]
        if events:
            self._delivered(steps[-1].revision)
        elif self._bookmark_due():
            self._delivered(self._position)
            events.append(Event("Bookmark", version_text(self._watch_cache.epoch, self._position)))
        return events

    @property
    def reads(self) -> bool:
        """See `Watch.reads`: only what has left the memory is read from the store."""
        return self._position < self._watch_cache.compacted_revision

    def wait(self, timeout_seconds: float) -> list[Event]:
        deadline = self._clock.monotonic() + timeout_seconds
        while not (events := self.poll()) and not self._closed:
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                break
            self._clock.wait(self._ready, remaining)
        return events

    def on_ready(self, wake: Callable[[], None]) -> None:
        """See `Watch.on_ready`; called at once when something may be there already."""
        self._wake = wake
        if self._position < self._watch_cache.head:
            self.wake()

    def close(self) -> None:
        self._closed = True
        self._watch_cache.forget(self)
        self._ready.set()

    def concerned(self, touched: set[tuple[str, str]], head: int) -> bool:
        """Whether these kinds and namespaces, or the need of a bookmark, are a reason to look."""
        if head - self._delivered_revision >= self._bookmark_revisions:
            return True
        if self._namespace:
            return (self.kind.name, self._namespace) in touched
        return any(kind == self.kind.name for kind, _ in touched)

    def wake(self) -> None:
        """Say that `poll` may have something."""
        self._ready.set()
        if self._wake is None:
            return
        try:
            self._wake()
        except Exception:  # noqa: BLE001  one reader's fault must not stop a writer
            _LOG.exception("the reader of a watch of %s could not be woken", self.kind.plural)

    def _event(self, step: Step) -> Event:
        version = version_text(self._watch_cache.epoch, step.revision)
        return Event(step.type, version, Record(self.kind, step.document))

    def _bookmark_due(self) -> bool:
        behind = self._position - self._delivered_revision
        overdue = self._clock.monotonic() - self._delivered_at >= self._bookmark_seconds
        return behind >= self._bookmark_revisions or (behind > 0 and overdue)

    def _delivered(self, revision: int) -> None:
        self._delivered_revision = revision
        self._delivered_at = self._clock.monotonic()


def expired() -> Expired:
    """What a watch ends with."""
    return Expired("the changes after this version are no longer kept", hint="list again and compare")


def _revision(step: Step) -> int:
    return step.revision
