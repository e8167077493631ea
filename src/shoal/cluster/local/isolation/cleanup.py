"""Removes what tasks leave on the disk, whatever they made of it.

A task may leave folders nested a million deep, millions of entries, folders without permissions and
links to other people's files. So removal does not recurse, holds at most `DEPTH` descriptors and `BATCH`
names a level, goes by descriptor and never through a link, stays on one file system and ends at a
deadline. What lies deeper than `DEPTH` is moved up into the tree's own root and removed from there.

Mounts, namespaces and their networks end with the last process; control groups are removed by
`cgroups.remove_strays`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from pathlib import Path

from shoal.cluster.local.isolation import sandbox

DEPTH = 64
BATCH = 1024
SECONDS = 300.0
REPORTED = 8
"""Failures that are reported for one tree at most."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: Path, timeout_seconds: float = SECONDS) -> list[str]:
    """Remove a folder or file; what could not be removed, with the reasons. Idempotent."""
    try:
        parent = os.open(folder.parent, _FOLDER)
    except FileNotFoundError:
        return []
    try:
        return _Removal(folder, parent, time.monotonic() + timeout_seconds).run()
    finally:
        os.close(parent)


def sweep_sandboxes(folder: Path) -> None:
    """Remove, below the folder of all sandboxes (by namespace and job uid), those without tasks."""
    for lock in folder.glob("*/*/lock"):
        sandbox.sweep(str(lock.parent))


class _Level:
    """One open folder on the way down."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor = descriptor
        self.name = name
        self.folders: list[str] = []
        """Folders in it that were found and not yet entered."""
        self.kept: set[str] = set()
        """Entries that cannot be removed."""


class _Removal:
    """One tree's."""

    def __init__(self, folder: Path, parent: int, deadline: float) -> None:
        self._folder = folder
        self._parent = parent
        self._deadline = deadline
        self._levels: list[_Level] = []
        self._device = 0
        self._moved = 0
        self._failures: list[str] = []

    def run(self) -> list[str]:
        name = self._folder.name
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=self._parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=self._parent)
                return []
            self._enter(self._parent, name)
        except FileNotFoundError:
            return []
        except OSError as error:
            return [f"{self._folder}: {error.strerror}"]
        try:
            while self._levels:
                if time.monotonic() > self._deadline:
                    self._failures.append(f"{self._folder}: it takes too long")
                    break
                self._step(self._levels[-1])
        finally:
            for level in self._levels:
                os.close(level.descriptor)
        return self._failures

    def _step(self, level: _Level) -> None:
        """Enter the next folder of the deepest level; when there is none, leave that level."""
        if not level.folders and not self._scan(level):
            self._leave(level)
            return
        if not level.folders:
            return
        name = level.folders.pop()
        try:
            if len(self._levels) < DEPTH:
                self._enter(level.descriptor, name)
            else:
                self._move_up(level.descriptor, name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._keep(level, name, error)

    def _scan(self, level: _Level) -> bool:
        """Remove up to a batch of entries that are no folders and note those that are; False when the
        folder has no more."""
        found = 0
        with os.scandir(level.descriptor) as entries:
            for entry in entries:
                if entry.name in level.kept:
                    continue
                found += 1
                try:
                    if entry.is_dir(follow_symlinks=False):
                        level.folders.append(entry.name)
                    else:
                        os.unlink(entry.name, dir_fd=level.descriptor)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._keep(level, entry.name, error)
                if found >= BATCH:
                    break
        return found > 0

    def _enter(self, parent: int, name: str) -> None:
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=parent)
        except PermissionError:
            _allow(name, parent)
            descriptor = os.open(name, _FOLDER, dir_fd=parent)
        found = os.fstat(descriptor)
        if self._levels and found.st_dev != self._device:
            os.close(descriptor)
            raise OSError(errno.EXDEV, "it is on another file system", name)
        self._device = found.st_dev
        self._levels.append(_Level(descriptor, name))
        if found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with contextlib.suppress(OSError):  # the removal of what is in it says why
                os.fchmod(descriptor, stat.S_IRWXU)

    def _leave(self, level: _Level) -> None:
        self._levels.pop()
        os.close(level.descriptor)
        above = self._levels[-1].descriptor if self._levels else self._parent
        try:
            os.rmdir(level.name, dir_fd=above)
        except FileNotFoundError:
            return
        except OSError as error:
            if self._levels:
                self._levels[-1].kept.add(level.name)
            if not level.kept:  # otherwise the reason is known: what is in it
                self._fail(level.name, error)

    def _move_up(self, parent: int, name: str) -> None:
        """Rename a folder into the root of the tree, which is scanned again before it is left."""
        _allow(name, parent)
        while True:
            self._moved += 1
            try:
                os.rename(
                    name, f".{os.getpid()}.{self._moved}",
                    src_dir_fd=parent, dst_dir_fd=self._levels[0].descriptor,
                )  # fmt: skip
                return
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise  # those three: the task has made such a name

    def _keep(self, level: _Level, name: str, error: OSError) -> None:
        level.kept.add(name)
        self._fail(name, error)

    def _fail(self, name: str, error: OSError) -> None:
        if len(self._failures) < REPORTED:
            above = [level.name for level in self._levels[1:]]
            shown = [*above[:3], "...", name] if len(above) > 3 else [*above, name]
            self._failures.append(f"{self._folder}/{'/'.join(shown)}: {error.strerror}")


def _allow(name: str, parent: int) -> None:
    """Let the owner list, enter and change a folder, without following a link."""
    with contextlib.suppress(OSError):  # the removal says why
        if not getattr(os, "O_PATH", 0):
            os.chmod(name, stat.S_IRWXU, dir_fd=parent, follow_symlinks=False)
            return
        handle = os.open(name, _HANDLE, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)
        finally:
            os.close(handle)
