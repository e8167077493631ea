"""Whether there is room to start at all: a server on a full disk dies without being able to say why."""

from __future__ import annotations

import shutil
from pathlib import Path

from shoal.cli.text import memory
from shoal.objects.errors import ShoalError

__all__ = ["DiskFull", "check_room", "nearest_folder"]

_LEAST_BYTES = 2 * 2**20


class DiskFull(ShoalError):
    """There is no room left where it is needed."""

    code = "DiskFull"


def check_room(home: Path) -> None:
    """Raises:
    DiskFull: the home's disk has less room than a server needs to start.
    """
    free = shutil.disk_usage(nearest_folder(home)).free
    if free < _LEAST_BYTES:
        raise DiskFull(
            f"the disk of {home} is full: {memory(free)} are left, and Shoal needs "
            f"{memory(_LEAST_BYTES)} to start",
            hint="make room, or keep Shoal's state elsewhere with --home or SHOAL_HOME",
        )


def nearest_folder(path: Path) -> Path:
    """The path itself, or the first folder above that is there."""
    return next(each for each in (path, *path.parents) if each.exists())
