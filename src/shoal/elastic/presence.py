"""What a worker reports of itself while it trains: progress, position, and how it ends.

The sidecar sees progress in shared memory, the coordinator gets a report twice a second, and what is
wrong is one line on stderr.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn

import torch

from shoal.elastic.detect.guardian import Guardian
from shoal.elastic.detect.progress import Where
from shoal.elastic.membership import Membership
from shoal.elastic.training import Training
from shoal.elastic.wire import Message

__all__ = ["Presence", "say"]

_PROGRESS_SECONDS = 0.5
_MOST_ERROR = 500


def say(text: str) -> None:
    """Print one line for the user, on stderr."""
    with contextlib.suppress(OSError):
        print(f"elastic: {text}", file=sys.stderr, flush=True)  # noqa: T201


class Presence:
    """Of one process; without membership and guardian only the script's user is informed.

    `failed`: what the coordinator was sent because the script has raised. `exit_code`: that of the last
    call of `sys.exit` in the main thread since the last batch; None: there was none.
    """

    def __init__(
        self, training: Training, membership: Membership | None, guardian: Guardian | None
    ) -> None:
        self.failed: Message | None = None
        self.exit_code: int | None = None
        self.before_failure: Callable[[], None] = lambda: None
        self._training = training
        self._membership = membership
        self._guardian = guardian
        self._epoch = 0
        self._part = (0, 0)
        self._told = 0.0
        self._warned = False
        self._step_seconds = 0.0
        self._stepped_at = 0.0
        training.on_step.append(self._after_step)
        training.waiting = self._waits

    def expect(self, progress: bool) -> None:
        """Whether a lack of progress from now on means that this worker hangs."""
        if self._guardian is not None:
            self._guardian.training(progress)

    def _waits(self, on: bool) -> None:
        if self._guardian is not None:
            self._guardian.training(not on)
        if self._membership is not None:
            self._membership.waits(on)

    def at(self, epoch: int, first: int, end: int) -> None:
        """The script is handed these samples of the epoch's order now; none if both are the same."""
        self._epoch, self._part = epoch, (first, end)
        if self._guardian is not None:
            self._guardian.at(Where(self._training.applied + 1, epoch, first, end))

    def progress(self) -> None:
        """The loop has come round."""
        if self._guardian is not None:
            self._guardian.touch()
        now = time.monotonic()
        if self._membership is None or now - self._told < _PROGRESS_SECONDS:
            return
        self._told = now
        self.exit_code = None
        training = self._training
        self._membership.progress({
            "step": training.committed,
            "cursor": training.committed_cursor.to_wire(),
            "step_seconds": round(self._step_seconds, 6),
            "samples": training.hand.planned,
            "world": training.size,
        })  # fmt: skip

    def watch_ends(self, told_to_go: Callable[[], None]) -> None:
        """Call `told_to_go` on SIGTERM, and report to the coordinator what the script raises."""
        if threading.current_thread() is threading.main_thread():

            def go(number: int, frame: FrameType | None) -> None:
                told_to_go()

            signal.signal(signal.SIGTERM, go)
        previous = sys.excepthook

        def failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._say_failed(kind, error)
            previous(kind, error, trace)

        sys.excepthook = failed
        self._watch_exit()

    def _watch_exit(self) -> None:
        """Note the exit code that a script asks for: functions of `atexit` cannot learn it otherwise."""
        leave = sys.exit

        @functools.wraps(leave)
        def noted(status: Any = None, /) -> NoReturn:
            if threading.current_thread() is threading.main_thread():
                self.exit_code = 0 if status is None else status & 0xFF if isinstance(status, int) else 1
            leave(status)

        sys.exit = noted

    def failure(self, error: str) -> Message:
        """The report of a worker that fails on the samples in hand."""
        return {
            "type": "failed",
            "step": self._training.applied + 1,
            "samples": [list(self._part)] if self._part != (0, 0) else [],
            "epoch_of_data": self._epoch,
            "error": error[:_MOST_ERROR],
        }

    def _say_failed(self, kind: type[BaseException], error: BaseException) -> None:
        if self._membership is None:
            return
        self.before_failure()
        self.failed = self.failure(f"{kind.__name__}: {error}")
        self._membership.send(self.failed)
        if self._guardian is not None:  # the message may be lost with the connection
            self._guardian.end(self.failed)

    def _after_step(self) -> None:
        if not self._warned and not self._training.reducer.finite:
            self._warn_of_gradients()
        now = time.monotonic()
        if self._stepped_at:
            taken = now - self._stepped_at
            before = self._step_seconds or taken
            self._step_seconds = 0.9 * before + 0.1 * taken
        self._stepped_at = now

    def _warn_of_gradients(self) -> None:
        """Once, on the worker they come from. A scaler meets such steps now and then, and skips them."""
        self._warned = True
        if any(isinstance(each, torch.amp.GradScaler) for each in self._training.objects.others):
            return
        first, end = self._part
        say(
            f"the gradients that this worker made in step {self._training.applied}, of the samples at "
            f"{first} to {end - 1} of epoch {self._epoch}'s order, are not finite, and all workers have "
            "learned from them: look at the data and the loss, or give a GradScaler to job.wrap"
        )
