"""Where the record is kept: a cell that is written by compare-and-set, durably.

`SqliteRecords` keeps it in a file, for a job that runs alone; `endpoint` has the platform's.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shoal import faults

__all__ = ["Kept", "Records", "Refused", "SqliteRecords", "Unavailable"]

_BUSY_SECONDS = 5.0
_REPORTS = 1000


class Refused(Exception):
    """Another coordinator has written since: this one is not the job's any more."""


class Unavailable(Exception):
    """It is not known whether it was written; the same write may be tried again."""


@dataclass(frozen=True)
class Kept:
    """What is kept. `data` is None before the first write. The sizes are the platform's, where there is
    one (`minimum` None: there is none): `target` is how many members to expect."""

    version: str
    data: bytes | None
    target: int | None = None
    minimum: int | None = None
    maximum: int | None = None


class Records(Protocol):
    """One cell. Called by one thread at a time. Versions are opaque and compared for equality."""

    @property
    def poll_seconds(self) -> float:
        """How often `load` may be called to see whether another coordinator has written."""
        ...

    def load(self) -> Kept:
        """What is kept now.

        Raises:
            Unavailable: it cannot be read now.
            Refused: this process may not read it any more.
        """
        ...

    def save(self, version: str, data: bytes) -> str:
        """Replace what was kept at `version`; durable when it returns the new version.

        Raises:
            Refused: what is kept has another version.
            Unavailable: it may or may not have been written.
        """
        ...

    def report(self, report: dict[str, Any]) -> None:
        """Pass on what people want to see; nothing depends on it.

        Raises:
            Unavailable: the store does not answer.
        """

    def grant(self, size: int) -> None:
        """Ask for another number of workers; they come and go later, or not.

        Raises:
            Unavailable: the store does not answer.
            Refused: it may not be asked for.
        """

    def close(self) -> None:
        """Let go of files and connections."""


class SqliteRecords:
    """In a file, with a write-ahead log. The newest reports are kept beside it, for people."""

    poll_seconds = 0.2

    def __init__(self, path: Path) -> None:
        """Create the file (mode 0600: it holds the job's key) and its folder if they are not there.

        Raises:
            Unavailable: the file cannot be opened, or is no database.
        """
        with _errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600, exist_ok=True)
            self._path = path
            self._kept = self._open("FULL")
            self._reports = self._open("NORMAL")
            self._kept.execute(
                "CREATE TABLE IF NOT EXISTS record (id INTEGER PRIMARY KEY CHECK (id = 1),"
                " version INTEGER NOT NULL, data BLOB NOT NULL) STRICT"
            )
            self._kept.execute(
                "CREATE TABLE IF NOT EXISTS report (number INTEGER PRIMARY KEY AUTOINCREMENT,"
                " at REAL NOT NULL, data TEXT NOT NULL) STRICT"
            )

    def load(self) -> Kept:
        """See `Records.load`."""
        with _errors(self._path):
            row = self._kept.execute("SELECT version, data FROM record WHERE id = 1").fetchone()
        return Kept("", None) if row is None else Kept(str(row[0]), bytes(row[1]))

    def save(self, version: str, data: bytes) -> str:
        """See `Records.save`."""
        with _errors(self._path):
            if not version:
                statement = (
                    "INSERT INTO record (id, version, data) VALUES (1, 1, ?) ON CONFLICT DO NOTHING"
                )
                changed = self._kept.execute(statement, (data,)).rowcount
            else:
                statement = (
                    "UPDATE record SET version = version + 1, data = ? WHERE id = 1 AND version = ?"
                )
                changed = self._kept.execute(statement, (data, int(version))).rowcount
        if changed != 1:
            raise Refused(f"the record in {self._path} is not at version {version} any more")
        faults.point("coordinator.record.saved")
        return str(int(version or 0) + 1)

    def report(self, report: dict[str, Any]) -> None:
        """See `Records.report`."""
        with _errors(self._path):
            self._reports.execute(
                "INSERT INTO report (at, data) VALUES (?, ?)", (time.time(), json.dumps(report))
            )
            self._reports.execute(
                "DELETE FROM report WHERE number <= (SELECT max(number) FROM report) - ?", (_REPORTS,)
            )

    def grant(self, size: int) -> None:
        """See `Records.grant`: there is no platform that could."""
        raise Unavailable(f"no platform gives the job {size} workers")

    def reports(self) -> list[dict[str, Any]]:
        """The newest reports, the oldest first."""
        with _errors(self._path):
            rows = self._reports.execute("SELECT data FROM report ORDER BY number").fetchall()
        return [json.loads(row[0]) for row in rows]

    def close(self) -> None:
        """See `Records.close`."""
        self._kept.close()
        self._reports.close()

    def _open(self, synchronous: str) -> sqlite3.Connection:
        # The service calls from its keeper's thread what its main thread has opened.
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection


@contextlib.contextmanager
def _errors(path: Path) -> Any:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(f"{path}: {error}") from error
