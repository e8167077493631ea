"""Notices what other processes write to the same database.

One thread while anybody watches: on Postgres it listens for the writers' notifications, on SQLite it
looks at the newest revision several times a second. It only moves the cache's head; watches then read
the events table.
"""

from __future__ import annotations

import selectors
import threading
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, select, text

from shoal.background import Backoff, SupervisedThread
from shoal.store.sql.connect import Database
from shoal.store.sql.schema import CHANNEL, HEAD
from shoal.store.watch_cache import WatchCache

_LOOK_SECONDS = 0.1
_LISTEN_SECONDS = 0.25
"""How long a stop may have to wait for the listening thread."""
_BACKOFF = Backoff(0.5, 5.0)


class Follower:
    """Runs from the first watch to `close`. Thread-safe.

    `own` is held by this process's writer from before its transaction until the cache knows of it, so
    that what this process wrote is not taken for another's.
    """

    def __init__(
        self, database: Database, cache: WatchCache, own: AbstractContextManager[object]
    ) -> None:
        self._database = database
        self._watch_cache = cache
        self._own = own
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: SupervisedThread | None = None

    def start(self) -> None:
        """Begin to follow, unless it has begun."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = SupervisedThread(
                    "store-follower", self._run, self._stop, backoff=_BACKOFF
                )
                self._thread.start()

    def close(self) -> None:
        """Stop; idempotent."""
        with self._lock:
            self._stop.set()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        follow = self._poll if self._database.sqlite else self._listen
        with self._database.reader.connect() as connection:
            follow(connection)

    def _poll(self, connection: Connection) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self._look(connection)
            connection.rollback()

    def _listen(self, connection: Connection) -> None:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()  # a connection that listens must not serve others
        connection.execute(text(f"LISTEN {CHANNEL}"))
        socket: Any = connection.connection.dbapi_connection  # Any: psycopg's connection
        with selectors.DefaultSelector() as selector:
            selector.register(socket, selectors.EVENT_READ)
            while not self._stop.is_set():
                self._look(connection)
                selector.select(_LISTEN_SECONDS)

    def _look(self, connection: Connection) -> None:
        head: int = connection.execute(select(HEAD.c.revision)).scalar_one()
        if head > self._watch_cache.head:
            with self._own:
                self._watch_cache.skip_to(head)
