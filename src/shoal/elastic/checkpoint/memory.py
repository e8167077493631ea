"""The folder in shared memory that outlives the trainer, and the rules for removing it.

    /dev/shm/shoal-<uid>-<hash of the checkpoint folder>/     the *place*: one per checkpoint folder
        lock                                                  held while regions are made or removed
        <token>/                                              a *region*: one per live or dead writer
            lock                                              held by its writer for as long as it lives
            slot-0, slot-1                                    the double buffer

A writer's lock goes with its process, however it ends, so a region with a free lock has no owner
any more. Such a region is read by the process that takes the training up again, and removed by the
next writer once that has a complete copy of its own, or by `discard` when the job is over. Standard
library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from shoal import faults
from shoal.elastic.checkpoint.header import COMMITTED, PAGE_BYTES, Header, unpack

__all__ = ["SLOTS", "Region", "committed", "discard", "place_for"]

SLOTS = ("slot-0", "slot-1")

_SHARED = Path("/dev/shm")
_PATIENCE_SECONDS = 2.0


def place_for(folder: Path, wanted: bool | Path) -> Path | None:
    """Where the copies in memory for a checkpoint folder lie on this machine; None for nowhere.

    `wanted` is a place, or whether to have one at all: then it is in /dev/shm, if there is such. A task
    with a /dev/shm of its own keeps them no longer than itself: give a place that its successor sees.
    """
    if isinstance(wanted, Path):
        return wanted
    if not wanted or not _SHARED.is_dir():
        return None
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return _SHARED / f"shoal-{os.geteuid()}-{name}"


def committed(place: Path) -> list[tuple[Path, Header]]:
    """The slots, of live and dead writers, that hold a committed state, and their headers."""
    found: list[tuple[Path, Header]] = []
    for region in _regions(place):
        for name in SLOTS:
            try:
                with (region / name).open("rb") as file:
                    header = unpack(file.read(PAGE_BYTES))
            except FileNotFoundError:
                continue
            if header is not None and header.state == COMMITTED:
                found.append((region / name, header))
    return found


def discard(place: Path) -> int:
    """Remove every region without a live writer, and the place once it is empty; how many went.

    For the process that ends a job: its sidecar, its coordinator, or the last trainer.
    """
    if not _ours(place):
        return 0
    gone = 0
    with _locked(place) as held:
        if not held:
            return 0
        for region in _regions(place):
            descriptor = _take(region / "lock")
            if descriptor is None:
                continue
            shutil.rmtree(region)
            os.close(descriptor)
            gone += 1
        if not _regions(place):
            (place / "lock").unlink()
            place.rmdir()
    return gone


class Region:
    """A writer's own folder in a place, locked for as long as its process lives.

    Raises:
        OSError: when the place cannot be used: no room, another user's, its lock not free in time.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        while True:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _ours(place):
                raise PermissionError(f"{place} is not this user's")
            with _locked(place) as held:
                if held:
                    self.path = place / secrets.token_hex(8)
                    self.path.mkdir(mode=0o700)
                    lock = _take(self.path / "lock")
                    break
            if place.exists():
                raise TimeoutError(f"{place}/lock is held for longer than {_PATIENCE_SECONDS:g} s")
        if lock is None:
            raise PermissionError(f"{self.path}/lock belongs to another user")
        self._lock = lock
        faults.point("checkpoint.memory.opened")

    def close(self) -> None:
        """Remove it; processes that have its slots mapped keep them."""
        os.close(self._lock)
        discard(self._place)


def _regions(place: Path) -> list[Path]:
    if not _ours(place):  # another user's files are neither read nor removed
        return []
    try:
        return sorted(entry for entry in place.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []


def _ours(place: Path) -> bool:
    try:
        found = place.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


@contextmanager
def _locked(place: Path) -> Generator[bool]:
    """Hold the place's lock; False when it is gone, or another holds it for too long."""
    path = place / "lock"
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while place.exists() and time.monotonic() < deadline:
        descriptor = _take(path)
        if descriptor is None:
            time.sleep(0.005)  # held for a few system calls by another process: nothing to wait on
            continue
        try:
            if _same(descriptor, path):  # else it was removed between open and lock
                yield True
                return
        finally:
            os.close(descriptor)
    yield False


def _take(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _same(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)
