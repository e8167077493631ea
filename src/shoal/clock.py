"""Time as a parameter: everything that waits or stamps takes a `Clock`, so tests can own time."""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["Clock", "SteadyClock", "SystemClock"]

_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """A source of time. Thread-safe.

    `now` is wall time, for stamps that people read; it may jump either way. `monotonic` never goes
    back and is what every deadline and age is measured with.
    """

    def now(self) -> float:
        """Wall time in seconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never decreases."""
        ...

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """Wait until `event` is set or the timeout has passed; True when the event is set."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """See `Clock.now`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """See `Clock.wait`."""
        return event.wait(timeout_seconds)


class SteadyClock(SystemClock):
    """Wall time as it was at the start of this process, carried on by a clock that is never set.

    A wall clock that is set back or forth while the process runs ends no wall-time limit early and
    orders no two events wrongly; the next process starts from the new wall time. Where the system
    supports it (Linux), the time that the machine was asleep counts.
    """

    def __init__(self) -> None:
        self._offset = time.time() - _since_boot()

    def now(self) -> float:
        """See `Clock.now`."""
        return self._offset + _since_boot()


def _since_boot() -> float:
    return time.clock_gettime(_BOOT_CLOCK)
