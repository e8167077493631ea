"""Opening a SQL store, and its backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from shoal.clock import Clock, SystemClock
from shoal.objects.errors import Unavailable
from shoal.objects.kinds import Kind
from shoal.store.backend import Step, Transaction, Window
from shoal.store.base import Authorise, allow_all
from shoal.store.sql.connect import Database, connect, translated
from shoal.store.sql.follow import Follower
from shoal.store.sql.schema import prepare
from shoal.store.sql.transaction import SqlSnapshot
from shoal.store.sql.writer import Trimmer, Writer
from shoal.store.transactional import TransactionalStore
from shoal.store.watch_cache import CacheWatch, WatchCache, expired

T = TypeVar("T")
_MEMORY_COUNT = 2_000
_MEMORY_BYTES = 8 << 20


class SqlStore(TransactionalStore):
    """A `Store` in a SQL database; made by `open_sql`. What it acknowledges is durable."""


def open_sql(
    url_or_path: str | os.PathLike[str],
    *,
    authorise: Authorise = allow_all,
    clock: Clock | None = None,
    window: Window | None = None,
    new_uid: Callable[[], str] | None = None,
) -> SqlStore:
    """Open the store in an SQLite file (made, mode 0600, when it is not there) or a database's URL.

    An older schema is brought up to date first. Several processes may have it open.

    Raises:
        Unavailable: it cannot be opened.
        VersionSkew: a newer Shoal has changed it.
        Invalid: the address means nothing, or its driver is not installed.
    """
    clock = clock or SystemClock()
    database = connect(url_or_path)
    try:
        backend = _Sql(database, clock, window or Window())
    except BaseException:
        database.dispose()
        raise
    return SqlStore(backend, authorise=authorise, clock=clock, new_uid=new_uid)


class _Sql:
    """See `shoal.store.backend.Backend`."""

    def __init__(self, database: Database, clock: Clock, window: Window) -> None:
        head = prepare(database)
        self._database = database
        self._closed = False
        memory = Window(
            min(window.count, _MEMORY_COUNT), window.age_seconds, min(window.bytes, _MEMORY_BYTES)
        )
        self._watch_cache = WatchCache(
            epoch=head.epoch,
            window=window,
            clock=clock,
            head=head.revision,
            older=self._older,
            memory=memory,
        )
        self._writer = Writer(database, self._watch_cache, clock, Trimmer(database, window, clock))
        self._follower = Follower(database, self._watch_cache, self._writer.busy)

    @property
    def epoch(self) -> str:
        return self._watch_cache.epoch

    def write(self, operation: Callable[[Transaction], T]) -> T:
        return self._writer.write(operation)

    @contextmanager
    def read(self) -> Generator[SqlSnapshot]:
        if self._closed:
            raise Unavailable("the store has been closed")
        try:
            with self._database.reader.connect() as connection:
                yield SqlSnapshot(connection)
        except DBAPIError as error:
            raise translated(error, self._database.where) from error
        except PoolTimeout as error:
            raise Unavailable("the store has more readers than it can serve; try again") from error

    def watch(self, kind: Kind, namespace: str, version: str) -> CacheWatch:
        self._follower.start()
        return self._watch_cache.watch(kind, namespace, version, self._newest)

    def close(self) -> None:
        self._watch_cache.close()
        self._follower.close()
        self._writer.close()
        self._closed = True
        self._database.dispose()

    def _newest(self) -> int:
        with self.read() as snapshot:
            return snapshot.head

    def _older(self, kind: str, namespace: str, after: int, limit: int) -> tuple[list[Step], int]:
        with self.read() as snapshot:
            if after < snapshot.compacted_revision:
                raise expired()
            return snapshot.steps(kind, namespace, after, limit)
