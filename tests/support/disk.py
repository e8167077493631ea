"""A disk that is really full: a small tmpfs, and what takes all its room.

    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        filler = fill(disk)
        ...
        filler.unlink()     # there is room again

Linux; mounting needs the right to.
"""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from shoal.testing.chaos import fill
from tests.support.require import require

__all__ = ["fill", "small_disk"]


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
