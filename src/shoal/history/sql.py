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
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Select,
    Table,
    and_,
    create_engine,
    delete,
    event,
    false,
    func,
    make_url,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DataError, IntegrityError, SQLAlchemyError

from shoal import faults
from shoal.history import tables
from shoal.history.base import About, Entry, EntryType, JobKey, Point, Retention
from shoal.history.batching import Batcher
from shoal.history.rows import COLUMNS, Row, from_row, point_from_row, point_to_row, to_row
from shoal.history.tables import entry, point
from shoal.objects.errors import Expired, Invalid, Unavailable
from shoal.objects.meta import Stamp

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
        self._insert_points = (
            _dialect_of(self._engine.dialect)
            .insert(point)
            .on_conflict_do_nothing(index_elements=["uid", "writer", "sequence"])
        )
        self._writer = Batcher[Row](self._write, self._dropped)

    def append(self, entries: tuple[Entry, ...]) -> None:
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

    def append_points(self, points: Sequence[Point]) -> int:
        """See `History.append_points`. Not behind: the sender of a batch waits for its answer."""
        if not points:
            return 0
        rows = [point_to_row(each) for each in points]
        with _translated(), self._engine.begin() as connection:
            tables.lock_appends(connection)
            connection.execute(point.delete().where(false()))  # SQLite: the write lock, before reading
            before = connection.execute(select(func.max(point.c.seq))).scalar() or 0
            connection.execute(self._insert_points, rows)
            added = select(func.count()).where(point.c.seq > before)
            return connection.execute(added).scalar_one()

    def points(
        self,
        namespace: str,
        *,
        job: str = "",
        uid: str = "",
        names: Sequence[str] = (),
        after: int = 0,
        limit: int = 0,
    ) -> tuple[Point, ...]:
        query = select(point).where(point.c.namespace == namespace, point.c.seq > after)
        if job:
            query = query.where(point.c.job == job)
        if uid:
            query = query.where(point.c.uid == uid)
        if names:
            query = query.where(point.c.name.in_(names))
        query = query.order_by(point.c.seq)
        if limit:
            query = query.limit(limit)
        with _translated(), self._engine.connect() as connection:
            found = connection.execute(query).mappings()
            return tuple(point_from_row(dict(row), row["seq"]) for row in found)

    def jobs_with_points(self, after: int) -> tuple[int, tuple[JobKey, ...]]:
        columns = (point.c.namespace, point.c.job, point.c.uid)
        newest = func.max(point.c.seq)
        query = select(*columns, newest).where(point.c.seq > after).group_by(*columns).order_by(newest)
        with _translated(), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        jobs = tuple(JobKey(namespace=row[0], name=row[1], uid=row[2]) for row in rows)
        return (rows[-1][3] if rows else after), jobs

    def flush(self) -> None:
        """Wait until what was appended is written; give up, with a line in the log, where it cannot."""
        try:
            self._writer.flush(_READ_WAIT_SECONDS)
        except Unavailable as error:
            _LOG.info("reading history without its newest entries: %s", error)

    def trim(self, retention: Retention, now: Stamp) -> int:
        """See `History.trim`. In small transactions, so that appends are not blocked."""
        self.flush()
        columns = (entry.c.kind, entry.c.namespace, entry.c.name, entry.c.uid)
        bounds = (retention.max_entries_per_object, retention.max_entries)
        gone = self._trim(entry, columns, bounds, now - retention.max_age_seconds)
        bounds = (retention.max_points_per_job, retention.max_points)
        return gone + self._trim(point, (point.c.uid,), bounds, now - retention.max_age_seconds)

    def close(self) -> None:
        self._writer.close()
        self._engine.dispose()

    def _write(self, rows: Sequence[Row]) -> None:
        with _translated(), self._engine.begin() as connection:
            connection.execute(self._upsert, list(rows))
        faults.point("history.entries.written")

    def _dropped(self, count: int) -> Row:
        about = About(kind="History", namespace="", name="history")
        message = f"{count} history entries were dropped while the history could not be written"
        lost = Entry(
            id=f"dropped/{secrets.token_hex(8)}", type="event", about=about, at=self._now(),
            reason="EntriesDropped", message=message, severity="Warning", count=count,
        )  # fmt: skip
        return to_row(lost)

    def _trim(
        self, table: Table, columns: Sequence[Column[Any]], bounds: tuple[int, int], oldest: Stamp
    ) -> int:
        """Delete rows older than that, and those over the bounds: of each object, and of all."""
        each, most = bounds
        gone = self._delete_oldest(table, table.c.at < oldest)
        crowded = select(*columns, func.count()).group_by(*columns).having(func.count() > each)
        with _translated(), self._engine.connect() as connection:
            found = connection.execute(crowded).all()
        for *values, count in found:
            which = and_(*(column == value for column, value in zip(columns, values, strict=True)))
            gone += self._delete_oldest(table, which, count - each)
        with _translated(), self._engine.connect() as connection:
            kept = connection.execute(select(func.count()).select_from(table)).scalar_one()
        if kept > most:
            gone += self._delete_oldest(table, table.c.seq > 0, kept - most)
        return gone

    def _delete_oldest(self, table: Table, which: ColumnElement[bool], most: int | None = None) -> int:
        order = (table.c.at, table.c.seq) if table is entry else (table.c.seq,)
        gone = 0
        while most is None or gone < most:
            batch = _TRIM_ROWS if most is None else min(_TRIM_ROWS, most - gone)
            doomed = select(table.c.seq).where(which).order_by(*order).limit(batch)
            with _translated(), self._engine.begin() as connection:
                deleted = connection.execute(delete(table).where(table.c.seq.in_(doomed))).rowcount
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
    insert = _dialect_of(dialect).insert(entry)
    replaced = {name: insert.excluded[name] for name in COLUMNS if name not in ("id", "at")}
    return insert.on_conflict_do_update(index_elements=["id"], set_=replaced)


def _dialect_of(dialect: Dialect) -> Any:
    return sqlite if dialect.name == "sqlite" else postgresql


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
