"""Keeps the events table within its window, in small portions between writes."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, delete, func, select, update
from sqlalchemy.exc import DBAPIError

from shoal import faults
from shoal.clock import Clock
from shoal.store.backend import Step, Window
from shoal.store.sql.connect import Database
from shoal.store.sql.failures import failure
from shoal.store.sql.tables import EVENTS, HEAD

__all__ = ["Trimmer"]

_PORTION = 1000
"""Most revisions that one transaction drops."""


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
        floor: int = connection.execute(locked).scalar_one()
        goal = max(head - self._window.count, self._aged(connection, head), self._oversize(connection))
        if goal <= floor:
            return False, False
        portion = min(goal, floor + _PORTION)
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
