"""One moment of a SQL database, for reading."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, bindparam, func, or_, select, tuple_

from shoal.objects.selectors import Requirement
from shoal.store.backend import Query, Step
from shoal.store.sql.tables import EVENTS, HEAD, OBJECTS

__all__ = ["SqlSnapshot"]

_O, _E = OBJECTS.c, EVENTS.c
_DOCUMENT = select(_O.document).where(
    _O.kind == bindparam("k"), _O.namespace == bindparam("s"), _O.name == bindparam("n")
)
_STEPS_BYTES = 4 << 20
"""Most bytes of documents that `steps` reads at once (but at least one step)."""


class SqlSnapshot:
    """See `shoal.store.backend.Snapshot`. Valid while its transaction is open."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bounds: tuple[int, int] | None = None

    @property
    def head(self) -> int:
        """See `Snapshot.head`."""
        return self._read_bounds()[0]

    @property
    def floor(self) -> int:
        """See `Snapshot.floor`."""
        return self._read_bounds()[1]

    def document(self, kind: str, namespace: str, name: str) -> bytes | None:
        """See `Snapshot.document`."""
        row = self._connection.execute(_DOCUMENT, {"k": kind, "s": namespace, "n": name}).first()
        return None if row is None else row[0]

    def documents(self, query: Query) -> list[tuple[str, str, bytes]]:
        """See `Snapshot.documents`."""
        statement = (
            select(_O.namespace, _O.name, _O.document)
            .where(_matches(query))
            .order_by(_O.namespace, _O.name)
        )
        if query.limit:
            statement = statement.limit(query.limit)
        return [(row[0], row[1], row[2]) for row in self._connection.execute(statement)]

    def count(self, query: Query) -> int:
        """See `Snapshot.count`."""
        statement = select(func.count()).select_from(OBJECTS).where(_matches(query))
        return self._connection.execute(statement).scalar_one()

    def steps(self, kind: str, namespace: str, after: int, limit: int) -> tuple[list[Step], int]:
        """Steps after that revision, at most so many, and how far one has come with them."""
        wanted = and_(_E.kind == kind, _E.revision > after)
        if namespace:
            wanted = and_(wanted, _E.namespace == namespace)
        sizes = select(_E.revision, _E.size).where(wanted).order_by(_E.revision).limit(limit)
        last, count, total = after, 0, 0
        for revision, size in self._connection.execute(sizes):
            if count and total + size > _STEPS_BYTES:
                break
            last, count, total = revision, count + 1, total + size
        else:
            if count < limit:
                last = self.head
        if not count:
            return [], last
        columns = select(_E.revision, _E.type, _E.kind, _E.namespace, _E.document)
        found = columns.where(wanted, _E.revision <= last).order_by(_E.revision)
        return [Step(*row) for row in self._connection.execute(found)], last

    def _read_bounds(self) -> tuple[int, int]:
        if self._bounds is None:
            revision, floor = self._connection.execute(select(HEAD.c.revision, HEAD.c.floor)).one()
            self._bounds = (revision, floor)
        return self._bounds


def _matches(query: Query) -> ColumnElement[bool]:
    conditions: list[ColumnElement[bool]] = [_O.kind == query.kind]
    if query.namespace:
        conditions.append(_O.namespace == query.namespace)
    if query.after:
        conditions.append(tuple_(_O.namespace, _O.name) > query.after)
    conditions += [_fulfils(requirement) for requirement in query.selector.requirements]
    return and_(*conditions)


def _fulfils(requirement: Requirement) -> ColumnElement[bool]:
    label = _O.labels[requirement.key].as_string()
    if requirement.operator == "exists":
        return label.is_not(None)
    if requirement.operator == "absent":
        return label.is_(None)
    if requirement.operator == "in":
        return label.in_(requirement.values)
    return or_(label.is_(None), label.not_in(requirement.values))
