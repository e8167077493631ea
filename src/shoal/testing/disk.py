"""A disk that is really full: a small tmpfs, and what takes all its room.

    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        filler = fill(disk)
        ...
        filler.unlink()     # there is room again

Linux; mounting needs the right to.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from shoal.testing.require import require

__all__ = ["fill", "small_disk"]

_PAGE = 4096
_MOST_BYTES_TO_FILL = 256 << 20


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Generator[Path, None, None]:
    """A file system of that size at the folder, which is made. Where none can be mounted the test is
    skipped, or fails if it was promised (`SHOAL_REQUIRE=mount`)."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        require("mount", f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave_bytes: int = 0) -> Path:
    """Take all the room of the folder's file system but so much: the file that does, to be removed.

    Raises:
        ValueError: the file system is so large that it is hardly a test's own.
    """
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize > _MOST_BYTES_TO_FILL:
        raise ValueError(f"{folder} is on a large file system; a small tmpfs is what this is for")
    filler = folder / ".filler"
    with filler.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(_PAGE))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        file.truncate(max(0, file.tell() - leave_bytes))
    return filler
