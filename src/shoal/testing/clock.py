"""A clock that a test owns: time passes when the test says so, and never otherwise.

Single-threaded tests call `advance`; things that are to happen at a moment are registered with `at`
and run, in order, on the thread that advances. Threads that wait on the clock wake when their
deadline has been passed by `advance` (within a few real milliseconds). With `auto=True` a wait does
not block: it advances the clock to its own deadline, so that a loop that sleeps can be stepped.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable

__all__ = ["VirtualClock"]

_SLICE_SECONDS = 0.002
"""How long a waiting thread sleeps really before it looks at virtual time again."""


class VirtualClock:
    """See `shoal.clock.Clock`. Thread-safe; callbacks of `at` run without any lock held."""

    def __init__(self, now: float = 1_800_000_000.0, *, auto: bool = False) -> None:
        self._auto = auto
        self._lock = threading.RLock()
        self._wall_offset = now
        self._monotonic = 0.0
        self._waiting = 0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    def now(self) -> float:
        with self._lock:
            return self._wall_offset + self._monotonic

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        if event.is_set():
            return True
        if self._auto:
            self.advance(max(0.0, timeout_seconds))
            return event.is_set()
        with self._lock:
            deadline = self._monotonic + timeout_seconds
            self._waiting += 1
        try:
            while not event.is_set() and self.monotonic() < deadline:
                event.wait(_SLICE_SECONDS)
        finally:
            with self._lock:
                self._waiting -= 1
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let time pass. Callbacks that become due run at their own moment, in order."""
        if seconds < 0:
            raise ValueError("time does not go back; use set_wall for a wall clock that jumps")
        with self._lock:
            end = self._monotonic + seconds
        while (due := self._next_due(end)) is not None:
            due()
        with self._lock:
            self._monotonic = max(self._monotonic, end)

    def at(self, delay_seconds: float, callback: Callable[[], None]) -> None:
        """Run `callback` once that much time has passed; equal moments run in the order of calling."""
        with self._lock:
            self._order += 1
            when = self._monotonic + max(0.0, delay_seconds)
            heapq.heappush(self._timers, (when, self._order, callback))

    def next_timer(self) -> float | None:
        """Seconds until the next callback is due, None when there is none."""
        with self._lock:
            return max(0.0, self._timers[0][0] - self._monotonic) if self._timers else None

    def set_wall(self, now: float) -> None:
        """Make the wall clock jump, either way; `monotonic` does not notice."""
        with self._lock:
            self._wall_offset = now - self._monotonic

    def waiting(self) -> int:
        """How many threads wait on the clock now."""
        with self._lock:
            return self._waiting

    def until_waiting(self, threads: int, timeout_seconds: float = 10.0) -> None:
        """Return once that many threads wait on the clock.

        Raises:
            TimeoutError: they did not within the (real) timeout.
        """
        deadline = time.monotonic() + timeout_seconds
        while self.waiting() < threads:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.waiting()} of {threads} threads wait on the clock")
            time.sleep(_SLICE_SECONDS)

    def _next_due(self, end: float) -> Callable[[], None] | None:
        with self._lock:
            if not self._timers or self._timers[0][0] > end:
                return None
            when, _, callback = heapq.heappop(self._timers)
            self._monotonic = max(self._monotonic, when)
            return callback
