"""Room on the disk for the store's own writes, so that a job that fills it can still be cancelled.

A file beside the database takes `RESERVE_BYTES` in advance. The first write that finds the disk full
removes it and is repeated; from then on new objects are refused, so that what is left serves cancelling,
deleting and statuses. Once there is room again the file is made anew. Where there is never so much room
the store does without.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from shoal.objects.errors import Unavailable

RESERVE_BYTES = 2 << 20
_ENOUGH = 3
"""The file is made when so many times its size are free."""

_LOG = logging.getLogger("shoal.store")


class DiskReserve:
    """Owned by the writer's thread. `path` is the database's; empty for a database server."""

    def __init__(self, path: str) -> None:
        self._path = Path(f"{path}-reserve") if path else None
        self._held = False
        self.released = False
        """The disk has been full, and there is not enough room yet."""
        self.restore()

    def release(self) -> bool:
        """Give the room to the writes; False when it was given before, or never had."""
        if self._path is None or not self._held:
            return False
        self._path.unlink(missing_ok=True)
        self._held, self.released = False, True
        _LOG.warning("the disk of %s is full: new objects are refused until there is room", self._path)
        return True

    def restore(self) -> None:
        """Take the room if it is not held and the disk has enough."""
        if self._path is None or self._held:
            return
        with contextlib.suppress(OSError):  # not yet
            disk = os.statvfs(self._path.parent)
            kept = self._path.exists()  # by an earlier process
            if not kept and disk.f_bavail * disk.f_frsize < _ENOUGH * RESERVE_BYTES:
                return
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _allocate(descriptor)
            finally:
                os.close(descriptor)
            self._held, self.released = True, False

    def check_new(self) -> None:
        """Raises:
        Unavailable: the room that is left is not for new objects.
        """
        if self.released:
            raise Unavailable(
                f"the disk of the store is full ({self._path and self._path.parent}); only changes that "
                "end or delete something are stored",
                hint="cancel or delete what fills it, or free some space, and repeat the command",
            )


def _allocate(descriptor: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
    else:
        os.pwrite(descriptor, bytes(RESERVE_BYTES), 0)
