"""Forks the output folder of a job for another one: the second job continues from the first's files.

Files are copied by reflink where the file system can, else byte for byte. Files of Shoal's own
checkpoints, which are never written again once their folder has its name, are hard linked. A copy is
made aside and gets its name by one rename: a fork that was interrupted is made again from the start.

Symbolic links are copied as links and not followed; sockets, pipes and devices are left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["fork_output"]

_REFLINK = 0x40049409
"""The ioctl FICLONE: the second file shares the blocks of the first until one of them is written."""
_CHECKPOINT = re.compile(r"\d{8,}-step-\d+-[0-9a-f]{8}")
"""A complete checkpoint of Shoal's elastic library; those being written or removed have a prefix."""
_MANIFEST = "manifest.json"


def fork_output(source: Path, target: Path, without: str = "") -> bool:
    """Make `target` a copy of the folder `source`, but for the path `without` below it. False: there is
    a `target` already, or no `source`.

    Raises:
        OSError: there is no room, or a file cannot be read.
    """
    if target.exists() or not source.is_dir():
        return False
    aside = target.with_name(f"{target.name}.fork")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700, parents=True)
    try:
        for folder, entry in _entries(source):
            place = entry.relative_to(source)
            if without and place.is_relative_to(without):
                continue
            _copy(entry, aside / place, immutable=_is_checkpoint(folder))
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return True


def _entries(source: Path) -> Iterator[tuple[Path, Path]]:
    """Each entry below the folder with its parent, parents first."""
    for folder, folders, files in os.walk(source):
        for name in (*folders, *files):
            yield Path(folder), Path(folder, name)


def _is_checkpoint(folder: Path) -> bool:
    return bool(_CHECKPOINT.fullmatch(folder.name)) and (folder / _MANIFEST).is_file()


def _copy(entry: Path, target: Path, *, immutable: bool) -> None:
    there = entry.lstat()
    if stat.S_ISLNK(there.st_mode):
        target.symlink_to(entry.readlink())
    elif stat.S_ISDIR(there.st_mode):
        target.mkdir(exist_ok=True)
    elif stat.S_ISREG(there.st_mode):
        if immutable:
            with contextlib.suppress(OSError):  # too many links, or a file system without them
                target.hardlink_to(entry)
                return
        _copy_file(entry, target)
        target.chmod(stat.S_IMODE(there.st_mode))


def _copy_file(entry: Path, target: Path) -> None:
    source = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(source, "rb") as reader, target.open("xb") as writer:  # noqa: PTH123 - of a descriptor
        try:
            fcntl.ioctl(writer.fileno(), _REFLINK, reader.fileno())
        except OSError:  # not on this file system
            shutil.copyfileobj(reader, writer, 1 << 20)
