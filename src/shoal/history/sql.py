"""History as rows in SQLite or Postgres, in a database of its own.

Of its own, so that the store never waits on history and a history that grew too large can be moved
away. Writing is behind (`batching`): what could not be written yet is waited for briefly before a
read, and the read goes on without it when writing fails, so that a full disk stays readable.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Select,
    and_,
    create_engine,
    delete,
    event,
    func,
    make_url,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DataError, IntegrityError, SQLAlchemyError

from shoal import faults
from shoal.history import tables
from shoal.history.base import About, Entry, EntryType, Retention
from shoal.history.batching import Batcher
from shoal.history.rows import COLUMNS, Row, from_row, to_row
from shoal.history.tables import entry
from shoal.objects.errors import Expired, Invalid, Unavailable
from shoal.objects.meta import Stamp

__all__ = ["SqlHistory"]

_LOG = logging.getLogger(__name__)
_READ_WAIT_SECONDS = 5.0
_TRIM_ROWS = 5000


class SqlHistory:
    """See `shoal.history.base.History`. Opens the path of an SQLite file, or `postgresql://...`.

    Raises:
        Invalid: it is neither, or no driver for it is installed.
        Unavailable: the database cannot be opened.
        VersionSkew: it is of another version.
    """

    def __init__(
        self, url_or_path: str | os.PathLike[str], *, now: Callable[[], Stamp] = time.time
    ) -> None:
        self._engine = _engine(os.fspath(url_or_path))
        self._now = now
        try:
            with _translated(), self._engine.begin() as connection:
                tables.ensure(connection)
        except BaseException:
            self._engine.dispose()
            raise
        self._upsert = _upsert(self._engine.dialect)
        self._writer = Batcher[Row](self._write, self._dropped)

    def append(self, entries: tuple[Entry, ...]) -> None:
        """See `History.append`."""
        self._writer.submit([to_row(each) for each in entries])

    def entries(
        self,
        *,
        types: tuple[EntryType, ...] = (),
        about: About | None = None,
        namespace: str = "",
        since: Stamp = 0.0,
        after: str = "",
        limit: int = 0,
        newest: bool = False,
    ) -> tuple[Entry, ...]:
        """See `History.entries`."""
        self.flush()
        query = select(*(entry.c[name] for name in COLUMNS)).where(*_filters(types, about, namespace))
        if since:
            query = query.where(entry.c.at >= since)
        query = _ordered(query, newest)
        if limit:
            query = query.limit(limit)
        with _translated(), self._engine.connect() as connection:
            if after:
                query = query.where(_behind(connection, after))
            found = [from_row(dict(row)) for row in connection.execute(query).mappings()]
        return tuple(reversed(found) if newest else found)

    def flush(self) -> None:
        """Wait until what was appended is written; give up, with a line in the log, where it cannot."""
        try:
            self._writer.flush(_READ_WAIT_SECONDS)
        except Unavailable as error:
            _LOG.info("reading history without its newest entries: %s", error)

    def trim(self, retention: Retention, now: Stamp) -> int:
        """See `History.trim`. In small transactions, so that appends are not blocked."""
        self.flush()
        oldest = entry.c.at < now - retention.max_age_seconds
        gone = self._delete_oldest(oldest)
        for about, count in self._crowded(retention.max_entries_per_object):
            gone += self._delete_oldest(and_(*about), count - retention.max_entries_per_object)
        with _translated(), self._engine.connect() as connection:
            kept = connection.execute(select(func.count()).select_from(entry)).scalar_one()
        if kept > retention.max_entries:
            gone += self._delete_oldest(entry.c.seq > 0, kept - retention.max_entries)
        return gone

    def close(self) -> None:
        """See `History.close`."""
        self._writer.close()
        self._engine.dispose()

    def _write(self, rows: Sequence[Row]) -> None:
        try:
            with _translated(), self._engine.begin() as connection:
                connection.execute(self._upsert, list(rows))
        except (DataError, IntegrityError):
            self._write_singly(rows)
        faults.point("history.entries.written")

    def _write_singly(self, rows: Sequence[Row]) -> None:
        """One of them cannot be stored: keep it from the others."""
        for row in rows:
            try:
                with _translated(), self._engine.begin() as connection:
                    connection.execute(self._upsert, row)
            except (DataError, IntegrityError) as error:
                _LOG.error("history entry %r cannot be stored: %s", row["id"], error.orig)

    def _dropped(self, count: int) -> Row:
        about = About(kind="History", namespace="", name="history")
        message = f"{count} history entries were dropped while the history could not be written"
        lost = Entry(
            id=f"dropped/{secrets.token_hex(8)}", type="event", about=about, at=self._now(),
            reason="EntriesDropped", message=message, severity="Warning", count=count,
        )  # fmt: skip
        return to_row(lost)

    def _crowded(self, most: int) -> list[tuple[list[ColumnElement[bool]], int]]:
        """Objects that have more entries than that, each as a filter, and how many."""
        columns = (entry.c.kind, entry.c.namespace, entry.c.name, entry.c.uid)
        query = select(*columns, func.count()).group_by(*columns).having(func.count() > most)
        with _translated(), self._engine.connect() as connection:
            found = connection.execute(query).all()
        return [
            ([column == value for column, value in zip(columns, row[:4], strict=True)], row[4])
            for row in found
        ]

    def _delete_oldest(self, which: ColumnElement[bool], most: int | None = None) -> int:
        gone = 0
        while most is None or gone < most:
            batch = _TRIM_ROWS if most is None else min(_TRIM_ROWS, most - gone)
            doomed = _ordered(select(entry.c.seq).where(which), newest=False).limit(batch)
            with _translated(), self._engine.begin() as connection:
                deleted = connection.execute(delete(entry).where(entry.c.seq.in_(doomed))).rowcount
            faults.point("history.entries.trimmed")
            gone += deleted
            if deleted < batch:
                break
        return gone


class _translated(AbstractContextManager[None]):  # noqa: N801 - reads as a word where it is used
    """Turns what the database says into Shoal's errors; wrong data is the writer's to see."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SQLAlchemyError) and not isinstance(error, DataError | IntegrityError):
            cause = getattr(error, "orig", None) or error
            sentence = str(cause).strip().splitlines()[0]
            raise Unavailable(f"the history database does not answer: {sentence}") from error


def _engine(url_or_path: str) -> Engine:
    if "://" not in url_or_path:
        return _sqlite(url_or_path)
    try:
        url = make_url(url_or_path)
    except ArgumentError as error:
        raise Invalid(f"the history's address cannot be read: {error}") from error
    if url.drivername.startswith("sqlite"):
        return _sqlite(url.database or "")
    if not url.drivername.startswith("postgres"):
        raise Invalid(
            f"no history can be kept in {url.drivername}", hint="use an SQLite file or postgresql://"
        )
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            connect_args={"application_name": "shoal-history", "connect_timeout": 10},
        )
    except ModuleNotFoundError as error:
        raise Invalid(
            "the driver for PostgreSQL is not installed", hint="pip install 'shoal[postgres]'"
        ) from error


def _sqlite(path: str) -> Engine:
    try:
        # for the owner alone; SQLite gives the files beside it the same mode
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Unavailable(
            f"the history at {path} cannot be opened: {error.strerror}",
            hint="see whether its folder exists and may be written",
        ) from error
    url = URL.create("sqlite+pysqlite", database=path)
    engine = create_engine(url, connect_args={"timeout": 10.0})
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """WAL, so that reading never waits for writing; the last moments may go with the power."""
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _upsert(dialect: Dialect) -> Any:
    insert = (sqlite if dialect.name == "sqlite" else postgresql).insert(entry)
    replaced = {name: insert.excluded[name] for name in COLUMNS if name not in ("id", "at")}
    return insert.on_conflict_do_update(index_elements=["id"], set_=replaced)


def _filters(
    types: tuple[EntryType, ...], about: About | None, namespace: str
) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if types:
        found.append(entry.c.type.in_(types))
    if namespace:
        found.append(entry.c.namespace == namespace)
    if about is None:
        return found
    found.append(entry.c.kind == about.kind)
    if about.name:
        found += [entry.c.namespace == about.namespace, entry.c.name == about.name]
    elif about.namespace:
        found.append(entry.c.namespace == about.namespace)
    if about.uid:
        found.append(entry.c.uid == about.uid)
    return found


def _ordered(query: Select[Any], newest: bool) -> Select[Any]:
    if newest:
        return query.order_by(entry.c.at.desc(), entry.c.seq.desc())
    return query.order_by(entry.c.at, entry.c.seq)


def _behind(connection: Connection, after: str) -> ColumnElement[bool]:
    place = connection.execute(select(entry.c.at, entry.c.seq).where(entry.c.id == after)).first()
    if place is None:
        raise Expired(f"no history entry {after!r} is kept", hint="list again")
    return or_(entry.c.at > place.at, and_(entry.c.at == place.at, entry.c.seq > place.seq))
