"""Moves what a task writes to its log, and never lets it wait.

One pipe carries standard output and error. Bytes are taken as they are, in large pieces; a task that
writes many small ones is read a little later, so that each piece is worth the waking up. What the disk
has no room for is dropped by the segments' writer, which counts it.
"""

from __future__ import annotations

import fcntl
import os
import select
import time

from shoal.history import segments

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Pump"]

_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 18
_SMALL_BYTES = 1 << 15
_BATCH_SECONDS = 0.01
_DRAIN_SECONDS = 0.5
_F_SETPIPE_SZ = 1031


class Pump:
    """From a pipe to the segments of a log."""

    def __init__(self, log: dict[str, Any]) -> None:
        self._writer = segments.Writer(log["directory"], log["max_segment_bytes"], log["max_segments"])
        self.reader, self.output = os.pipe()
        """Where to read, and where the task is to write."""
        os.set_blocking(self.reader, False)
        self.resume_at = 0.0
        """When (monotonic) it is next worth looking."""
        self._last = 0.0
        self._buffer = bytearray(_READ_BYTES)
        try:
            fcntl.fcntl(self.output, _F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            return  # over this user's allowance: the ordinary size works too

    def close_output(self) -> None:
        """Let go of the writing end, so that the end of the task is the end of the log; idempotent."""
        if self.output >= 0:
            os.close(self.output)
            self.output = -1

    @property
    def dropped_bytes(self) -> int:
        """What the disk had no room for."""
        return self._writer.dropped_bytes

    def move(self, now: float) -> bool:
        """Move what there is, up to a piece; False when the pipe has no writer any more."""
        try:
            count = os.readv(self.reader, [self._buffer])
        except BlockingIOError:
            self.resume_at = 0.0
            return True
        if count == 0:
            return False
        self._writer.write(memoryview(self._buffer)[:count], time.time())
        chatty = count < _SMALL_BYTES and now - self._last < 2 * _BATCH_SECONDS
        self.resume_at = now + _BATCH_SECONDS if chatty else 0.0
        self._last = now
        return True

    def say(self, sentence: str) -> None:
        """Add a line of our own."""
        self._writer.write(f"shoal: {sentence}\n".encode(errors="surrogateescape"), time.time())

    def finish(self) -> None:
        """Move what is left, once the task's processes are gone, and close the log."""
        waiting = select.poll()
        waiting.register(self.reader, select.POLLIN)
        # should a process have escaped with the other end, silence is the end
        while waiting.poll(_DRAIN_SECONDS * 1000) and self.move(time.monotonic()):
            pass
        if self.dropped_bytes:
            self.say(f"{self.dropped_bytes} bytes of this log were dropped: {self._writer.last_error}")
        self._writer.close()
        os.close(self.reader)
