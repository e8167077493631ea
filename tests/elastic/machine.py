"""How slow this machine is just now, for tests that measure time: other tests run beside them."""

from __future__ import annotations

import threading
import time
from typing import Self

__all__ = ["Baseline"]

_SLEEP_SECONDS = 0.02
_WORK = 2000


class Baseline:
    """Measures, beside the test: how much later than asked for a sleeping thread runs (`late_seconds`,
    the worst case), and how much longer work takes than its processor time (`slowdown`)."""

    def __init__(self) -> None:
        self.late_seconds = 0.0
        self._wall = self._processor = 1e-9
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def slowdown(self) -> float:
        """1 on an idle machine."""
        return max(1.0, self._wall / self._processor)

    def allow(self, seconds: float) -> float:
        """What takes at most so long on an idle machine may take so long here. Several processes have a
        part in it, and each of them may have been as late as the thread."""
        return seconds * self.slowdown + 5 * self.late_seconds

    def _measure(self) -> None:
        while not self._stop.is_set():
            asked = time.monotonic()
            time.sleep(_SLEEP_SECONDS)
            woken = time.monotonic()
            self.late_seconds = max(self.late_seconds, woken - asked - _SLEEP_SECONDS)
            began = time.thread_time()
            sum(range(_WORK))
            self._processor += time.thread_time() - began
            self._wall += time.monotonic() - woken
