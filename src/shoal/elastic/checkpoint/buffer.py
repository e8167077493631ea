"""Two slots, and the rules for their use: the trainer stages, a thread writes to disk.

A slot is being filled, staged, committed or empty; a committed one may be lent to the writing thread. A
slot is filled only if the other is lent (then that one is complete and committed) or if it is not the
newest committed one itself: so once something was committed, a complete committed copy exists at every
moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.elastic.checkpoint import header as heads
from shoal.elastic.checkpoint import layout, slots, tree
from shoal.elastic.checkpoint.header import Header
from shoal.elastic.checkpoint.memory import SLOTS, Region
from shoal.elastic.checkpoint.slots import Content, Slot

__all__ = ["Buffer"]

_log = logging.getLogger(__name__)


class Buffer:
    """The double buffer of one saver, in a region of `place`, or private where that is None or full.

    Thread-safe, but only one thread stages and commits. Sequences begin at `sequence`.
    """

    def __init__(self, place: Path | None, sequence: int) -> None:
        self._changed = threading.Condition()
        self._sequence = sequence
        self._region = _region(place)
        paths = [None, None] if self._region is None else [self._region.path / name for name in SLOTS]
        self._slots = [Slot(path) for path in paths]
        self._lent: Slot | None = None
        self._written = 0
        self._closing = False

    def prepare(self, state: Mapping[str, Any]) -> None:
        """Have room for states like this one.

        Raises:
            CheckpointError: `Unsupported`.
            OSError: not even private memory can be had.
        """
        plain, tensors = tree.split(state)
        size = slots.size_of(plain, layout.plan(tensors))
        for at in range(len(self._slots)):
            self._reserve(at, size)

    def stage(self, state: Mapping[str, Any], step: int) -> None:
        """Copy a state in, in place of any that is staged and not committed.

        Raises:
            CheckpointError: `Unsupported`; what was staged before stays.
            OSError: not even private memory can be had.
        """
        plain, tensors = tree.split(state)
        places = layout.plan(tensors)
        with self._changed:
            self.forget()
            slot = slots.choose(self._slots, self._lent)
            slot.clear()  # from here on it is lent to no reader
            header = Header(heads.EMPTY, sequence=self._sequence, step=step)
            self._sequence += 1
        slot = self._reserve(self._slots.index(slot), slots.size_of(plain, places))
        slot.fill(header, plain, tensors, places)

    def commit(self, step: int, epoch: int) -> bool:
        """What is staged of a step up to `step` is committed; True if there is such."""
        with self._changed:
            for slot in self._slots:
                if slot.header.state == heads.STAGED and slot.header.step <= step:
                    slot.commit(epoch)
                    self._changed.notify_all()
                    return True
        return False

    def forget(self) -> None:
        """What is staged is not to be used."""
        with self._changed:
            for slot in self._slots:
                if slot.header.state == heads.STAGED:
                    slot.clear()

    def borrow(self) -> Content | None:
        """Wait for a committed state that was not borrowed yet, and keep it from being replaced until
        `give_back`; None once the buffer is closing and there is none left."""
        with self._changed:
            while True:
                self._lent = self._newest()
                if self._lent is not None:
                    return self._lent.content()
                if self._closing:
                    return None
                self._changed.wait()  # for as long as the training has nothing to save

    def vouch(self, places: tuple[layout.Place, ...]) -> None:
        """Note the hashes of the state that is borrowed."""
        with self._changed:
            if self._lent is not None:
                self._lent.vouch(places)

    def give_back(self) -> None:
        """What was borrowed is on disk, or has failed to get there."""
        with self._changed:
            if self._lent is not None:
                self._written = self._lent.header.sequence
                self._lent = None
            self._changed.notify_all()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until nothing is borrowed or waits to be; False when the time is up."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._lent is None and self._newest() is None, timeout_seconds
            )

    def finish(self) -> None:
        """Nothing will be staged any more: `borrow` ends after what is committed."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def remove(self) -> None:
        """Let go of the shared memory."""
        if self._region is not None:
            self._region.close()
            self._region = None

    def _newest(self) -> Slot | None:
        waiting = [
            slot
            for slot in self._slots
            if slot.header.state == heads.COMMITTED and slot.header.sequence > self._written
        ]
        return max(waiting, key=lambda slot: slot.header.sequence, default=None)

    def _reserve(self, at: int, size: int) -> Slot:
        slot = self._slots[at]
        try:
            slot.reserve(size)
        except OSError as error:
            if slot.path is None:
                raise
            _log.warning(
                "no room for %d bytes in %s (%s): checkpoints are staged in private memory, "
                "which ends with this process",
                size,
                slot.path.parent,
                error,
            )
            slot.path.unlink(missing_ok=True)
            slot = Slot(None)
            slot.reserve(size)
            with self._changed:
                self._slots[at] = slot
        return slot


def _region(place: Path | None) -> Region | None:
    if place is None:
        return None
    try:
        return Region(place)
    except OSError as error:
        _log.warning("checkpoints are staged in private memory, which ends with this process: %s", error)
        return None
