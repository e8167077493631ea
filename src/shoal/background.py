"""Background threads that an exception does not end: each is logged, counted, backed off and restarted.

A thread of the server or of an agent that ends unseen leaves its work undone for ever, so every
long-lived one is a `SupervisedThread`. Its target runs until the stopping event is set; an exception
that it does not expect itself is recorded and the target is called again, after a pause that doubles
from `first_seconds` to `most_seconds` with jitter. `reports()` lists the supervised threads of the
process, for `/readyz`, `doctor` and metrics.

Standard library only: servers, agents and stores import this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from shoal.clock import Clock, SystemClock

__all__ = ["Backoff", "SupervisedThread", "ThreadReport", "reports"]

STEADY_SECONDS = 10.0
"""A target that has run so long without an exception works again."""


@dataclass(frozen=True)
class Backoff:
    """Wait before the n-th retry: `first * 2**(n-1)`, at most `most`, plus or minus a quarter."""

    first_seconds: float = 0.05
    most_seconds: float = 30.0

    def after(self, failures: int, seed: str) -> float:
        """The wait after that many failures in a row; equal arguments give equal waits."""
        exponent = min(failures - 1, 30)
        import random  # late: it costs a command-line program a few milliseconds

        jitter = random.Random(f"{seed}:{failures}").uniform(0.75, 1.25)
        return min(self.first_seconds * 2.0**exponent, self.most_seconds) * jitter


@dataclass(frozen=True)
class ThreadReport:
    """A supervised thread as it is now."""

    name: str
    restarts: int
    """Exceptions that its target raised since the thread started."""
    error: str
    """The last of them while the target has not yet run steadily again; empty: it works."""
    since: float
    """Wall time of the first exception of the row that `error` belongs to; 0 without one."""


class SupervisedThread(threading.Thread):
    """A daemon thread that calls `target` until it returns, or until `stopping` is set.

    Args:
        target: the loop. It returns when `stopping` is set (or when its work is over).
        stopping: set by the owner; also ends the pause before a restart.
        clock: for the pause and for when an exception happened.
        backoff: the pauses between restarts.
    """

    def __init__(
        self,
        name: str,
        target: Callable[[], object],
        stopping: threading.Event,
        *,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._loop = target
        self._stopping = stopping
        self._clock = clock or SystemClock()
        self._backoff = backoff or Backoff()
        self._lock = threading.Lock()
        self._restarts = 0
        self._in_a_row = 0
        self._error = ""
        self._since = 0.0
        self._begun: float | None = None
        """When the target was called last; None while it is not running."""

    def run(self) -> None:
        """See `threading.Thread.run`."""
        while not self._stopping.is_set():
            with self._lock:
                self._begun = self._clock.monotonic()
            try:
                self._loop()
                return
            except Exception as error:  # noqa: BLE001 - recorded, and the target is called again
                pause = self._failed(error)
            self._clock.wait(self._stopping, pause)

    def report(self) -> ThreadReport:
        """How the thread does now."""
        with self._lock:
            if self._steady():
                return ThreadReport(self.name, self._restarts, "", 0.0)
            return ThreadReport(self.name, self._restarts, self._error, self._since)

    def _failed(self, error: Exception) -> float:
        text = f"{type(error).__name__}: {error}"
        with self._lock:
            known = text == self._error and not self._steady()
            self._in_a_row = self._in_a_row + 1 if not self._steady() else 1
            if self._in_a_row == 1:
                self._since = self._clock.now()
            self._restarts += 1
            self._begun, self._error = None, text
            pause = self._backoff.after(self._in_a_row, self.name)
        if not known:
            import logging  # late, as above

            log = logging.getLogger("shoal.background")
            log.error("thread %s failed and is restarted: %s", self.name, text, exc_info=error)
        return pause

    def _steady(self) -> bool:
        begun = self._begun
        return begun is not None and self._clock.monotonic() - begun >= STEADY_SECONDS


def reports() -> tuple[ThreadReport, ...]:
    """The supervised threads of this process that run now, by name."""
    threads = [thread for thread in threading.enumerate() if isinstance(thread, SupervisedThread)]
    return tuple(sorted((thread.report() for thread in threads), key=lambda report: report.name))
