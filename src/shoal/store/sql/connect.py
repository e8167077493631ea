"""Connections: a writing and a reading engine per database, what its errors mean, and retries."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, NoSuchModuleError

from shoal.objects.errors import Invalid, ShoalError, Unavailable

T = TypeVar("T")
BUSY_SECONDS = 30.0
"""How long a call may wait for another process that holds the database."""
_SQLITE_POLL_SECONDS = 5
"""How long SQLite itself waits for a lock before the writer's retries take over."""
_WRITER_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA journal_size_limit=8388608",
)
"""FULL: the log is flushed at each commit, so what was acknowledged survives a power cut."""
_READERS = 8
_MORE_READERS = 56

Failure = Literal["busy", "full", "lost", "refused", "broken"]
"""busy: another process holds it, try again. full: no room. lost: it does not answer. refused: it
does not take this value. broken: anything else."""

_SQLITE: dict[int, Failure] = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_TOOBIG: "refused",
}
_POSTGRES: dict[str, Failure] = {
    "55P03": "busy",
    "40001": "busy",
    "40P01": "busy",
    "53100": "full",
    "53300": "busy",
    "25P03": "lost",
}
"""SQLSTATEs: lock not available, serialization failure, deadlock, disk full, too many connections,
idle in a transaction for too long."""


@dataclass(frozen=True)
class Database:
    """`where` names it in errors, without its password."""

    writer: Engine
    reader: Engine
    where: str

    @property
    def sqlite(self) -> bool:
        """Whether it is a file."""
        return self.writer.dialect.name == "sqlite"

    def dispose(self) -> None:
        """Close every connection; the last one to an SQLite file tidies it, so it must be a writer's."""
        self.reader.dispose()
        self.writer.dispose()


def connect(url_or_path: str | os.PathLike[str]) -> Database:
    """Engines for a path of an SQLite file, or a URL: `sqlite:///PATH`, `postgresql://...`.

    Raises:
        Invalid: it is neither, or no driver for it is installed.
        Unavailable: the file cannot be opened.
    """
    url = _url(os.fspath(url_or_path))
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite(url)
        return _postgres(url)
    except ModuleNotFoundError as error:
        raise Invalid(
            f"the driver {error.name!r} for {url.get_backend_name()} is not installed",
            hint="pip install 'shoal[postgres]'",
        ) from error


def _url(text: str) -> URL:
    if "://" not in text:
        return URL.create("sqlite+pysqlite", database=text)
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError) as error:
        raise Invalid(f"the store's address cannot be read: {error}") from error
    if backend == "postgres":
        backend = "postgresql"
    drivers = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}
    if backend not in drivers:
        raise Invalid(f"no store can be kept in {backend}", hint="use an SQLite file or postgresql://")
    return url.set(drivername=drivers[backend])


def _sqlite(url: URL) -> Database:
    if not url.database or url.database == ":memory:":
        raise Invalid("an SQLite store needs a file", hint="MemoryStore keeps objects in memory")
    path = Path(url.database)
    _create_private(path)
    arguments = {"timeout": _SQLITE_POLL_SECONDS, "check_same_thread": False}
    writer = create_engine(url, connect_args=arguments, pool_size=1, max_overflow=0)
    reader = create_engine(
        url, connect_args=arguments, pool_size=_READERS, max_overflow=_MORE_READERS, pool_use_lifo=True
    )
    # IMMEDIATE: the lock is taken, and waited for, before anything is read that a write builds on
    _prepare(writer, "BEGIN IMMEDIATE", *_WRITER_PRAGMAS)
    _prepare(reader, "BEGIN", "PRAGMA query_only=ON")
    return Database(writer, reader, str(path))


def _create_private(path: Path) -> None:
    """SQLite gives the files beside this one (-wal, -shm) the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _flush_folder(path.parent)
    except FileExistsError:
        return
    except OSError as error:
        raise Unavailable(
            f"the store at {path} cannot be opened: {error.strerror}",
            hint="see whether its folder exists and may be written",
        ) from error


def _flush_folder(folder: Path) -> None:
    """SQLite flushes the folder for files that it makes, and this one is made for it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prepare(engine: Engine, begin: str, *pragmas: str) -> None:
    """Every statement of ours is in a transaction that we begin; sqlite3's own idea of when is off."""

    def connected(connection: Any, _: object) -> None:  # Any: a sqlite3.Connection behind the pool
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()

    def begun(connection: Any) -> None:  # Any: SQLAlchemy's events are untyped
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)


def _postgres(url: URL) -> Database:
    where = url.set(password=None).render_as_string()
    arguments = {"application_name": "shoal", "connect_timeout": 10}
    pool: dict[str, Any] = {"pool_pre_ping": True, "connect_args": arguments}  # Any: SQLAlchemy's own
    writer = create_engine(url, pool_size=1, max_overflow=0, **pool)
    reader = create_engine(
        url,
        pool_size=_READERS,
        max_overflow=_MORE_READERS,
        isolation_level="REPEATABLE READ",
        **pool,
    )
    _limit(writer, "SET synchronous_commit = on", f"SET lock_timeout = '{BUSY_SECONDS:.0f}s'")
    _limit(reader, "SET default_transaction_read_only = on")
    return Database(writer, reader, where)


def _limit(engine: Engine, *settings: str) -> None:
    """A process that stalls inside a transaction loses it, for it holds what every writer needs."""
    stalled = f"SET idle_in_transaction_session_timeout = '{BUSY_SECONDS:.0f}s'"

    def connected(connection: Any, _: object) -> None:  # Any: a psycopg connection behind the pool
        with connection.cursor() as cursor:
            for setting in (stalled, *settings):
                cursor.execute(setting)
        connection.commit()

    event.listen(engine, "connect", connected)


def failure(error: DBAPIError) -> Failure:
    """What kind of failure this is."""
    if error.connection_invalidated:
        return "lost"
    if isinstance(error, DataError | IntegrityError):
        return "refused"
    code = getattr(error.orig, "sqlite_errorcode", None)
    if isinstance(code, int):
        return _SQLITE.get(code & 0xFF, "broken")
    state = getattr(error.orig, "sqlstate", None)
    if isinstance(state, str):
        return "lost" if state[:2] in ("08", "57") else _POSTGRES.get(state, "broken")
    return (
        "lost"
        if error.orig is not None and type(error.orig).__module__.startswith("psycopg")
        else "broken"
    )


def translated(error: DBAPIError, where: str) -> ShoalError:
    """The error that a caller of the store gets."""
    what = failure(error)
    said = str(error.orig).strip().partition("\n")[0]
    if what == "refused":
        return Invalid(f"the store cannot hold this: {said}")
    if what == "busy":
        return Unavailable(
            f"the store at {where} is busy: {said}", hint="another process holds it; try again"
        )
    if what == "full":
        return Unavailable(
            f"the disk of the store at {where} is full; nothing of this change was stored",
            hint="free some space and repeat the command; what was stored before can be read",
        )
    if what == "lost":
        return Unavailable(
            f"the database at {where} does not answer: {said}",
            hint="a change that was under way may or may not have been stored",
        )
    return Unavailable(f"the store at {where} failed: {said}", hint="see whether its disk is healthy")


def until_free(attempt: Callable[[], T]) -> T:
    """Attempt it until the database is not busy, for `BUSY_SECONDS` at most.

    Real time, whatever clock the store stamps with: another process's lock knows no other.

    Raises:
        DBAPIError: of the last attempt; at once when it is not that the database is busy.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return attempt()
        except DBAPIError as error:
            if failure(error) != "busy" or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.005, 0.05))
