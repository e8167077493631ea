"""What a worker shows its sidecar without a system call: seven numbers in memory that both have mapped.

The worker writes, the sidecar reads, neither waits for the other: an aligned 64-bit number is never seen
half written. Writing takes well under a microsecond, so that it can be done in every step.
"""

from __future__ import annotations

import mmap
import os
import sys
from typing import NamedTuple

__all__ = ["Progress", "Shown", "Where", "new_memory"]

_BYTES = 4096
_MARKS, _TRAINING, _ANSWERS, _STEP, _EPOCH, _FIRST, _END = range(7)


class Shown(NamedTuple):
    """What stood there at one moment."""

    marks: int
    """How often progress was marked; any change is progress."""
    training: bool
    """Progress is expected. False while the worker waits for others, starts or ends."""
    answers: int
    """How often a thread of the worker has answered; it can only while the interpreter lock is free."""


class Where(NamedTuple):
    """The samples `[first, end)` in the order of `epoch` that the worker is at, for `step`."""

    step: int
    epoch: int
    first: int
    end: int


class Progress:
    """The memory behind a descriptor of `new_memory`, mapped. Does not own the descriptor.

    Raises:
        OSError, ValueError: the descriptor is no such memory.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _BYTES)
        self._cells = memoryview(self._memory).cast("Q")
        self._marks = 0

    def mark(self) -> None:
        """There was progress. Safe from any thread: a mark that is lost to a race leaves another."""
        self._marks += 1
        self._cells[_MARKS] = self._marks

    def train(self, on: bool) -> None:
        """Progress is expected from now on, or is not."""
        self._cells[_TRAINING] = on
        self.mark()

    def answer(self) -> None:
        """A thread of the worker runs. One thread only."""
        self._cells[_ANSWERS] += 1

    def at(self, where: Where) -> None:
        """What the script is handed now; nothing when `first` is `end`."""
        for cell, value in zip((_STEP, _EPOCH, _FIRST, _END), where, strict=True):
            self._cells[cell] = value

    def where(self) -> Where:
        """What it was handed last."""
        return Where(*(self._cells[cell] for cell in (_STEP, _EPOCH, _FIRST, _END)))

    def shown(self) -> Shown:
        """What stands there."""
        cells = self._cells
        return Shown(cells[_MARKS], bool(cells[_TRAINING]), cells[_ANSWERS])

    def close(self) -> None:
        """Unmap it. Not while another thread marks."""
        self._cells.release()
        self._memory.close()


def new_memory() -> int:
    """A descriptor of fresh, zeroed memory that has no name; the caller closes it.

    Raises:
        OSError: there is no room for it.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create("shoal-progress")
    else:
        import tempfile  # costs milliseconds, and only systems without memfd need it

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _BYTES)
    return descriptor
