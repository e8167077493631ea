"""One thread that writes: it takes all operations that wait, runs them in one transaction, commits once.

Group commit makes durability cheap under load (one flush for many writes) and a single writer per
process leaves SQLite nothing to be locked by but other processes, which are waited for here, in one
place. Operations refuse before they change anything, so a refused one leaves the transaction as it was;
when the database itself refuses, each operation is run again in a transaction of its own, and only
the one at fault fails. Between writes the thread drops what has left the watch window.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, delete, func, select, update
from sqlalchemy.exc import DBAPIError

from shoal import faults
from shoal.background import SupervisedThread
from shoal.clock import Clock
from shoal.objects.errors import Unavailable
from shoal.store.backend import Step, Transaction, Window
from shoal.store.sql.connect import Database, failure, translated, until_free
from shoal.store.sql.reserve import DiskReserve
from shoal.store.sql.schema import EVENTS, HEAD
from shoal.store.sql.transaction import SqlTransaction
from shoal.store.watch_cache import WatchCache

T = TypeVar("T")
_LOG = logging.getLogger("shoal.store")
_GROUP = 256
"""Most operations of one transaction."""
_TRIM_PORTION = 1000
"""Most revisions that one transaction drops."""


class Writer:
    """See the module. Thread-safe; its thread runs from the first write to `close`."""

    def __init__(self, database: Database, cache: WatchCache, clock: Clock, trimmer: Trimmer) -> None:
        self._database = database
        self._watch_cache = cache
        self._clock = clock
        self._trimmer = trimmer
        self._reserve = DiskReserve(database.where if database.sqlite else "")
        self.busy = threading.Lock()
        """Held from before a transaction until the cache knows of it."""
        self._queue: SimpleQueue[_Operation | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: SupervisedThread | None = None
        self._closed = False

    def write(self, operation: Callable[[Transaction], T]) -> T:
        """See `Backend.write`."""
        queued = _Operation(operation)
        with self._lock:
            if self._closed:
                raise Unavailable("the store has been closed")
            if self._thread is None:
                # never stopped by an event: what is queued is written before `close` returns
                self._thread = SupervisedThread("store-writer", self._run, threading.Event())
                self._thread.start()
            self._queue.put(queued)
        return queued.future.result()

    def waiting(self) -> int:
        """How many operations wait, about."""
        return self._queue.qsize()

    def close(self) -> None:
        """Finish what is queued, then stop; idempotent."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is None:
            return
        self._queue.put(None)
        if thread is not threading.current_thread():  # a reader that was woken may close the store
            thread.join()

    def _run(self) -> None:
        while (group := self._take()) is not None:
            self._write_group(group)
            try:
                self._trimmer.after_writes(self._watch_cache.head)
                self._reserve.restore()
            except Exception:  # noqa: BLE001  no caller waits for it, and writes must go on
                _LOG.exception("the store's window could not be trimmed")

    def _take(self) -> list[_Operation] | None:
        """Everything that waits, at least one operation; None at the end."""
        first = self._queue.get()
        if first is None:
            return None
        group = [first]
        while len(group) < _GROUP:
            try:
                following = self._queue.get_nowait()
            except Empty:
                break
            if following is None:
                self._queue.put(None)
                break
            group.append(following)
        return group

    def _write_group(self, group: list[_Operation]) -> None:
        try:
            until_free(lambda: self._transact(group))
        except DBAPIError as error:
            if failure(error) == "full" and self._reserve.release():
                self._write_group(group)
                return
            if len(group) > 1 and failure(error) == "refused":
                for operation in group:
                    self._write_group([operation])
                return
            for operation in group:
                known = translated(error, self._database.where)
                known.__cause__ = error
                operation.future.set_exception(known)
        except Exception as error:  # noqa: BLE001  whatever it is, the waiting callers must get it
            for operation in group:
                if not operation.future.done():
                    operation.future.set_exception(error)

    def _transact(self, group: list[_Operation]) -> None:
        with self.busy:
            with self._database.writer.begin() as connection:
                transaction = SqlTransaction(connection, self._watch_cache.epoch, self._reserve)
                for operation in group:
                    operation.run(transaction)
                transaction.finish(self._clock.now())
            faults.point("store.write.committed")
            wake = self._watch_cache.extend(transaction.before, transaction.steps, transaction.revision)
        for watch in wake:
            watch.wake()
        self._trimmer.count(transaction.steps)
        for operation in group:
            operation.answer()


class _Operation:
    """One queued write, and the future of its caller."""

    def __init__(self, operation: Callable[[Transaction], Any]) -> None:
        self.future: Future[Any] = Future()
        self._operation = operation
        self._result: Any = None
        self._refusal: Exception | None = None

    def run(self, transaction: Transaction) -> None:
        """Run it; a refusal is kept for the answer, a failure of the database is everyone's."""
        self._result = self._refusal = None
        try:
            self._result = self._operation(transaction)
        except DBAPIError:
            raise
        except Exception as error:  # noqa: BLE001  the caller's: a refusal, or a value with no JSON
            self._refusal = error

    def answer(self) -> None:
        """Give the waiting caller the result or the error."""
        if self._refusal is not None:
            self.future.set_exception(self._refusal)
        else:
            self.future.set_result(self._result)


class Trimmer:
    """Owned by the writer's thread."""

    def __init__(self, database: Database, window: Window, clock: Clock) -> None:
        self._database = database
        self._window = window
        self._clock = clock
        self._steps = 0
        self._bytes = 0
        self._looked = clock.monotonic()
        self._more = True

    def count(self, steps: list[Step]) -> None:
        """These have been added."""
        self._steps += len(steps)
        self._bytes += sum(len(step.document) for step in steps)

    def after_writes(self, head: int) -> None:
        """Drop a portion if one is due. A failure is left to the next time: nothing is lost by it."""
        window = self._window
        now = self._clock.monotonic()
        if not (
            self._more
            or self._steps >= max(1, window.count // 10)
            or self._bytes >= window.bytes // 10
            or now - self._looked >= window.age_seconds / 10
        ):
            return
        self._steps = self._bytes = 0
        self._looked = now
        try:
            with self._database.writer.begin() as connection:
                dropped, self._more = self._trim(connection, head)
        except DBAPIError as error:
            self._more = False
            if failure(error) not in ("busy", "full", "lost"):
                raise
            return
        if dropped:
            faults.point("store.events.trimmed")

    def _trim(self, connection: Connection, head: int) -> tuple[bool, bool]:
        """Drop a portion; whether anything was, and whether more is to be."""
        locked = select(HEAD.c.floor).with_for_update()
        compacted: int = connection.execute(locked).scalar_one()
        goal = max(head - self._window.count, self._aged(connection, head), self._oversize(connection))
        if goal <= compacted:
            return False, False
        portion = min(goal, compacted + _TRIM_PORTION)
        connection.execute(delete(EVENTS).where(EVENTS.c.revision <= portion))
        connection.execute(update(HEAD).values(floor=portion))
        return True, portion < goal

    def _aged(self, connection: Connection, head: int) -> int:
        """The newest revision that is too old."""
        oldest = self._clock.now() - self._window.age_seconds
        young = select(EVENTS.c.revision).where(EVENTS.c.at >= oldest)
        first = connection.execute(young.order_by(EVENTS.c.revision).limit(1)).scalar()
        return head if first is None else first - 1

    def _oversize(self, connection: Connection) -> int:
        """The newest revision that, counted from the newest back, is over the bound of bytes."""
        total: ColumnElement[int] = func.sum(EVENTS.c.size).over(order_by=EVENTS.c.revision.desc())
        sums = select(EVENTS.c.revision, total.label("total")).subquery()
        over = select(func.max(sums.c.revision)).where(sums.c.total > self._window.bytes)
        return connection.execute(over).scalar() or 0
