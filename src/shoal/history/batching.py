"""Writes behind: what is submitted is written by a thread, many at a time, soon.

For writers that must never wait on a disk. Real time, not a Clock: a batch is about the disk, and a
test's clock that stands still must not keep an entry from it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from shoal.background import SupervisedThread
from shoal.objects.errors import Unavailable

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

_BATCH = 2000
_LONGEST_PAUSE_SECONDS = 5.0
_CLOSE_SECONDS = 10.0


class Batcher(Generic[T]):
    """Hands submitted items to `write` in batches, in order, from a thread of its own.

    `write` raises `Unavailable` when it cannot now: the batch is kept and tried again, with a pause
    that doubles. More than `bound` waiting items are not accepted; they are counted and, once writing
    works, `dropped` is called with how many to make an item that says so.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], None],
        dropped: Callable[[int], T],
        *,
        bound: int = 50_000,
        delay_seconds: float = 0.03,
    ) -> None:
        self._write = write
        self._dropped = dropped
        self._bound = bound
        self._delay_seconds = delay_seconds
        self._waiting: deque[T] = deque()
        self._changed = threading.Condition()
        self._submitted = 0
        self._written = 0
        self._lost = 0
        self._refused = 0
        self._urgent = 0
        self._failure: Unavailable | None = None
        self._closing = False
        # never stopped by an event: what is queued is written before `close` returns
        self._thread = SupervisedThread("history-writer", self._run, threading.Event())
        self._thread.start()

    def submit(self, items: Sequence[T]) -> None:
        """Take the items, all or none; never waits."""
        with self._changed:
            if self._closing:
                _LOG.error("history is closed; %d entries came too late", len(items))
                return
            if len(self._waiting) + len(items) > self._bound:
                self._lost += len(items)
                return
            self._waiting.extend(items)
            self._submitted += len(items)
            if len(self._waiting) == len(items) or len(self._waiting) >= _BATCH:
                self._changed.notify_all()

    @property
    def refused(self) -> int:
        """How many entries were dropped because `write` raised something else than `Unavailable`."""
        return self._refused

    def flush(self, timeout_seconds: float) -> None:
        """Return once everything submitted before this call is written.

        Raises:
            Unavailable: it cannot be, or not in time.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            goal = self._submitted
            self._urgent += 1
            self._changed.notify_all()
            try:
                while self._written < goal:
                    left = deadline - time.monotonic()
                    if self._failure is not None:
                        raise Unavailable(self._failure.message)
                    if left <= 0 or not self._thread.is_alive():
                        raise Unavailable("the history is behind with writing")
                    self._changed.wait(left)
            finally:
                self._urgent -= 1

    def close(self) -> None:
        """Write what waits, once more if it failed before, and end the thread; idempotent.

        What hangs for longer than `_CLOSE_SECONDS` is left to the end of the process.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            _LOG.error("history did not end in time; %d entries may be lost", len(self._waiting))

    def _run(self) -> None:
        pause = 0.0
        while (batch := self._next_batch(pause)) is not None:
            if not batch:
                continue
            try:
                self._write_all(batch)
            except Unavailable as error:
                pause = min(_LONGEST_PAUSE_SECONDS, max(0.1, pause * 2))
                if self._keep(batch, error):
                    continue
                return
            pause = 0.0
            self._done(len(batch))

    def _write_all(self, batch: list[T]) -> None:
        """Write the batch; where it cannot be written as it is, without the items at fault."""
        try:
            self._write(batch)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one bad entry must not keep the others from the disk
            if len(batch) == 1:
                _LOG.exception("an entry cannot be kept in history and is dropped: %.500r", batch[0])
                self._refused += 1
                return
            _LOG.warning("%d entries of history are written one by one: %s", len(batch), error)
            while batch:  # what is written leaves the batch, so that a retry does not write it twice
                self._write_all(batch[:1])
                del batch[0]
                self._done(1)

    def _next_batch(self, pause: float) -> list[T] | None:
        """The next items, after the pause; None when there are none and none will come."""
        with self._changed:
            if pause:
                self._changed.wait_for(lambda: self._closing, pause)
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                return None
            self._changed.wait_for(self._due, self._delay_seconds)
            return [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]

    def _due(self) -> bool:
        return self._closing or self._urgent > 0 or len(self._waiting) >= _BATCH

    def _keep(self, batch: list[T], error: Unavailable) -> bool:
        """Put the batch back; False when no caller waits for it any more."""
        with self._changed:
            if self._failure is None:
                _LOG.warning("history cannot be written: %s", error)
            self._failure = error
            self._waiting.extendleft(reversed(batch))
            self._changed.notify_all()
            if self._closing:
                _LOG.error("history is closed with %d entries not written", len(self._waiting))
                return False
            return True

    def _done(self, count: int) -> None:
        with self._changed:
            if self._failure is not None:
                _LOG.warning("history can be written again; %d entries were dropped", self._lost)
            self._failure = None
            self._written += count
            if self._lost:
                self._waiting.append(self._dropped(self._lost))
                self._submitted += 1
                self._lost = 0
            self._changed.notify_all()
