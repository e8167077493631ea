"""What Ctrl-C means while `shoal run` follows a job: not an exception in the middle of anything, but
one more event for the thread that decides."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

__all__ = ["Interrupts"]


class Interrupts:
    """While entered, SIGINT calls `tell` (from a signal handler: it must not block). Whoever was told
    says `taken`; a second SIGINT before that is a KeyboardInterrupt, for somebody is not listening."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._untaken = 0
        self._before: Any = None

    def taken(self) -> None:
        """The last one was noticed."""
        self._untaken = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._untaken += 1
        if self._untaken > 1:
            raise KeyboardInterrupt
        self._tell()
