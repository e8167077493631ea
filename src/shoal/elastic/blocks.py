"""Memory for copies of the state, with its pages already there.

Copying 120 MB into fresh memory takes four times as long as into memory that has been written to before:
the kernel hands out a page at a time. So blocks are made in a thread before they are needed, and used
again. Copies from a GPU want pinned memory, which is slower still to make.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, cast

import torch

from shoal.elastic import threads

__all__ = ["Blocks"]

_SMALL_BYTES = 1 << 20
_PAGE_BYTES = 4096
_ROUND_BYTES = 1 << 21
_MOST_SPARE = 2


class Blocks:
    """Blocks of bytes on the CPU. Thread-safe."""

    def __init__(self, device: torch.device | None = None) -> None:
        """`device`: what is copied comes from there."""
        self._pinned = device is not None and device.type == "cuda"
        self._lock = threading.Lock()
        self._spare: list[torch.Tensor] = []
        # a block comes back wherever its last user lets go of it, perhaps amid a collection of garbage,
        # where no lock may be asked for
        self._back: deque[torch.Tensor] = deque()
        self._making: threading.Thread | None = None

    def ready(self, size: int) -> bool:
        """Whether a block of `size` bytes is there to be taken; if not, a thread makes one."""
        if size < _SMALL_BYTES:
            return True
        with self._lock:
            self._collect()
            if any(block.numel() >= size for block in self._spare):
                return True
            if self._making is None or not self._making.is_alive():
                self._making = threads.start(self._make, "shoal-blocks", size)
            return False

    def take(self, size: int) -> torch.Tensor:
        """A block, uint8, of shape (size,): made now if none is ready.

        It is the caller's for as long as anything refers to it: the tensor, a view of it, its buffer.
        """
        if size < _SMALL_BYTES:
            return torch.empty(size, dtype=torch.uint8)
        with self._lock:
            self._collect()
            fitting = [at for at, block in enumerate(self._spare) if block.numel() >= size]
            best = min(fitting, key=lambda at: self._spare[at].numel(), default=None)
            block = self._spare.pop(best) if best is not None else None
        if block is None:
            block = self._fresh(size)
        # what torch makes of a buffer refers to that very object, views of views of it do too
        lent = memoryview(cast("Any", block.numpy()))[:size]  # pyright: ignore[reportUnknownMemberType]
        weakref.finalize(lent, self._back.append, block).atexit = False
        return torch.frombuffer(lent, dtype=torch.uint8)

    def clear(self) -> None:
        """Give back what is not used."""
        with self._lock:
            self._back.clear()
            self._spare.clear()

    def _make(self, size: int) -> None:
        block = self._fresh(size)
        block[::_PAGE_BYTES].fill_(0)
        self._back.append(block)

    def _fresh(self, size: int) -> torch.Tensor:
        rounded = -(-size // _ROUND_BYTES) * _ROUND_BYTES
        return torch.empty(rounded, dtype=torch.uint8, pin_memory=self._pinned)

    def _collect(self) -> None:
        while self._back:
            self._spare.append(self._back.popleft())
        self._spare.sort(key=torch.Tensor.numel)
        del self._spare[:-_MOST_SPARE]
