"""The queue of one controller's keys: each waits once, runs once at a time, and may wait for its time.

A key that is added while it runs is taken again afterwards, so no change is missed; a key that is added
while it waits is not taken twice. First come, first served. A delay is replaced by the next one.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque

from shoal.clock import Clock
from shoal.metrics import WORKQUEUE_ADDS, WORKQUEUE_LATENCY

__all__ = ["Key", "WorkQueue"]

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-wide kinds."""


class WorkQueue:
    """Thread-safe. Delays are measured with the clock's monotonic time."""

    def __init__(self, clock: Clock, name: str = "") -> None:
        """`name` is the controller's, for metrics."""
        self._clock = clock
        self._adds = WORKQUEUE_ADDS.labels(name)
        self._latency = WORKQUEUE_LATENCY.labels(name)
        self._added: dict[Key, float] = {}
        self._lock = threading.Lock()
        self._something = threading.Event()
        self._ready: deque[Key] = deque()
        self._waiting: set[Key] = set()
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []

    def add(self, key: Key) -> None:
        """Have the key taken as soon as it does not run."""
        with self._lock:
            self._add(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Have the key taken after that time, unless it is added sooner; replaces an earlier delay."""
        if seconds <= 0:
            self.add(key)
            return
        with self._lock:
            due = self._clock.monotonic() + seconds
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            self._something.set()

    def add_within(self, key: Key, seconds: float) -> None:
        """Have the key taken after that time at the latest: an earlier delay stays."""
        if seconds <= 0:
            self.add(key)
            return
        with self._lock:
            due = self._clock.monotonic() + seconds
            if key not in self._waiting and due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._heap, (due, key))
                self._something.set()

    def take(self) -> Key | None:
        """The next key that is ready, None when there is none. `done` must follow."""
        with self._lock:
            self._promote()
            if not self._ready:
                self._something.clear()
                return None
            key = self._ready.popleft()
            self._waiting.discard(key)
            self._latency.observe(self._clock.monotonic() - self._added.pop(key))
            self._running.add(key)
            self._due.pop(key, None)
            return key

    def done(self, key: Key) -> None:
        """The key has run; if it was added during the run it is ready again."""
        with self._lock:
            self._running.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._add(key)

    def wait(self, timeout_seconds: float) -> None:
        """Return when something may be ready, or at the timeout."""
        due = self.next_due()
        if due is not None:
            timeout_seconds = min(timeout_seconds, due)
        if timeout_seconds > 0:
            self._clock.wait(self._something, timeout_seconds)

    def wake(self) -> None:
        """End every `wait` now."""
        self._something.set()

    def next_due(self) -> float | None:
        """Seconds until a key is ready: 0 when one is, None when none waits."""
        with self._lock:
            if self._ready:
                return 0.0
            self._drop_stale()
            if not self._heap:
                return None
            return max(0.0, self._heap[0][0] - self._clock.monotonic())

    def __len__(self) -> int:
        with self._lock:
            return len(self._ready) + len(self._running)

    def _add(self, key: Key) -> None:
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._added[key] = self._clock.monotonic()
            self._adds.inc()
            self._something.set()

    def _promote(self) -> None:
        now = self._clock.monotonic()
        self._drop_stale()
        while self._heap and self._heap[0][0] <= now:
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            self._add(key)
            self._drop_stale()

    def _drop_stale(self) -> None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
