"""The start-up part of `shoal run`: the components of a home, started while `run` prepares the rest."""

from __future__ import annotations

import threading
from pathlib import Path

from shoal.client.address import connect_unix, home_address

__all__ = ["Starting"]

_ANSWERS_WITHIN_SECONDS = 2.0


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
            from shoal.cli.offline.room import check_room
            from shoal.cluster.local.components import ensure_up
            from shoal.cluster.local.home import Home

            check_room(self._home)
            self._started = bool(ensure_up(Home(self._home)))
        except Exception as error:  # noqa: BLE001  carried to the thread that waits
            self._error = error


def _answers(home: Path) -> bool:
    try:
        connect_unix(home_address(home).path, _ANSWERS_WITHIN_SECONDS).close()
    except OSError:
        return False
    return True
