"""The start-up part of `shoal run`: the components of a home, started while `run` prepares the rest.

The room on the disk is checked first: a server on a full disk ends without being able to say why.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Self

from shoal.background import SupervisedThread
from shoal.cli.output import say
from shoal.client.address import connect_unix, home_address
from shoal.objects.errors import ShoalError
from shoal.objects.text import memory

_ANSWERS_WITHIN_SECONDS = 2.0
_LOOKS_EACH_SECONDS = 1.0
_MISSES = 2
"""Server and agents restart one another within this many looks; after that none is left to do it."""


class Starting:
    """Begins at once, in a thread of its own; `finish` waits for it. Costs one connection when the
    server is up: that server keeps the agents up."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._started = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        if not _answers(home):
            self._thread = threading.Thread(target=self._start, name="start", daemon=True)
            self._thread.start()

    def finish(self) -> bool:
        """True when something had to be started; returns once all of it answers.

        Raises:
            ShoalError, OSError: it does not come up.
        """
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._started

    def _start(self) -> None:
        try:
            from shoal.cli.offline.start import check_room
            from shoal.cluster.local.components import ensure_up
            from shoal.cluster.local.home import Home

            check_room(self._home)
            self._started = bool(ensure_up(Home(self._home)))
        except Exception as error:  # noqa: BLE001  carried to the thread that waits
            self._error = error


class Reviving:
    """While `run` follows a job, start a home again when all its components have died: they restart one
    another, but none restarts the last. A home that `shoal down` took down stays down."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._over = threading.Event()
        self._thread = SupervisedThread("revive", self._watch, self._over)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        misses = 0
        while not self._over.wait(_LOOKS_EACH_SECONDS):
            misses = 0 if _answers(self._home) else misses + 1
            if misses >= _MISSES and not (self._home / "run" / "down").exists():
                try:
                    Starting(self._home).finish()
                except (ShoalError, OSError) as error:
                    say(f"Shoal has died and cannot be started again: {error}")
                    return


def _answers(home: Path) -> bool:
    try:
        connect_unix(home_address(home).path, _ANSWERS_WITHIN_SECONDS).close()
    except OSError:
        return False
    return True


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
