"""How fast the loop of a test program runs, so that a test need not guess how long it will take."""

from __future__ import annotations

import time
from pathlib import Path

SLOWER = 20
"""In the last third of the steps a pass takes as many times as long: there is something left to train
while a busy machine starts a process."""


class Pace:
    """`seconds` a pass of `steps` in all, until the file `hurry` exists: from then on no wait."""

    def __init__(self, seconds: float, steps: int, hurry: Path | None) -> None:
        self._seconds = seconds
        self._steps = steps
        self._hurry = hurry

    def wait(self, step: int) -> None:
        """The wait of the pass after `step`."""
        seconds = self._seconds * (SLOWER if 3 * step > 2 * self._steps else 1)
        until = time.monotonic() + seconds
        while self._seconds and (left := until - time.monotonic()) > 0.0:
            if self._hurry is not None and self._hurry.exists():
                self._seconds = 0.0
                return
            time.sleep(min(left, 0.02))
