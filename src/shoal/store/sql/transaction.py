"""The rules' view of a SQL database (a writing transaction), and that of readers (a snapshot)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    tuple_,
    update,
)

from shoal.objects.selectors import Requirement
from shoal.store.backend import Change, Found, LeaseRow, Query, Step, version_text
from shoal.store.sql.reserve import DiskReserve
from shoal.store.sql.schema import CHANNEL, EVENTS, HEAD, LEASES, OBJECTS, OWNERS

_O, _E = OBJECTS.c, EVENTS.c
_BY_KEY = and_(_O.kind == bindparam("k"), _O.namespace == bindparam("s"), _O.name == bindparam("n"))
_HEAD = select(HEAD.c.revision, HEAD.c.floor)
_HEAD_LOCKED = _HEAD.with_for_update()
_FIND = select(_O.kind, _O.uid, _O.document).where(_BY_KEY)
_HAS_UID = select(_O.uid).where(_O.uid == bindparam("u"))
_OWNED = (
    select(_O.kind, _O.uid, _O.document)
    .join(OWNERS, OWNERS.c.uid == _O.uid)
    .where(OWNERS.c.owner_uid == bindparam("u"))
    .order_by(_O.kind, _O.namespace, _O.name)
)
_ADD = insert(OBJECTS)
_MODIFY = update(OBJECTS).where(_BY_KEY).values(labels=bindparam("l"), document=bindparam("d"))
_REMOVE = delete(OBJECTS).where(_BY_KEY)
_OWN = insert(OWNERS)
_DISOWN = delete(OWNERS).where(OWNERS.c.uid == bindparam("u"))
_TELL = insert(EVENTS)
_ADVANCE = update(HEAD).values(revision=bindparam("r"))
_LEASE = select(LEASES).where(LEASES.c.name == bindparam("n"))
_NOTIFY = text(f"NOTIFY {CHANNEL}")
_DOCUMENT = select(_O.document).where(
    _O.kind == bindparam("k"), _O.namespace == bindparam("s"), _O.name == bindparam("n")
)
_STEPS_BYTES = 4 << 20
"""Most bytes of documents that `steps` reads at once (but at least one step)."""


class SqlTransaction:
    """See `shoal.store.backend.Transaction`. Locks the head for as long as it is open."""

    def __init__(self, connection: Connection, epoch: str, reserve: DiskReserve) -> None:
        self._reserve = reserve
        self._connection = connection
        self._epoch = epoch
        self.before: int
        self.before, self.compacted_revision = connection.execute(_HEAD_LOCKED).one()
        self.revision = self.before
        self.steps: list[Step] = []

    def find(self, kind: str, namespace: str, name: str) -> Found | None:
        row = self._connection.execute(_FIND, {"k": kind, "s": namespace, "n": name}).first()
        return None if row is None else Found(*row)

    def has_uid(self, uid: str) -> bool:
        return self._connection.execute(_HAS_UID, {"u": uid}).first() is not None

    def owned_by(self, uid: str) -> Sequence[Found]:
        return [Found(*row) for row in self._connection.execute(_OWNED, {"u": uid})]

    def next_version(self) -> tuple[int, str]:
        self.revision += 1
        return self.revision, version_text(self._epoch, self.revision)

    def apply(self, changes: tuple[Change, ...]) -> None:
        """See `Transaction.apply`. Events and the head are written by `finish`."""
        if any(change.type == "Added" for change in changes):
            self._reserve.check_new()
        for change in changes:
            self._apply(change)
            self.steps.append(change.step())

    def lease(self, name: str) -> LeaseRow | None:
        row = self._connection.execute(_LEASE, {"n": name}).first()
        return None if row is None else LeaseRow(*row)

    def put_lease(self, row: LeaseRow) -> None:
        values = {
            "holder": row.holder,
            "token": row.token,
            "duration_seconds": row.duration_seconds,
            "renewals": row.renewals,
        }
        changed = self._connection.execute(
            update(LEASES).where(LEASES.c.name == row.name).values(values)
        )
        if not changed.rowcount:
            self._connection.execute(insert(LEASES), {"name": row.name, **values})

    def finish(self, at: float) -> None:
        """Write what all operations of the transaction have in common."""
        if self.revision != self.before:
            self._connection.execute(_ADVANCE, {"r": self.revision})
        if self.steps:
            self._connection.execute(_TELL, [_event(step, at) for step in self.steps])
            if self._connection.dialect.name == "postgresql":
                self._connection.execute(_NOTIFY)

    def _apply(self, change: Change) -> None:
        row = change.row
        key = {"k": row.kind, "s": row.namespace, "n": row.name}
        if change.type == "Added":
            self._connection.execute(
                _ADD,
                {
                    "kind": row.kind,
                    "namespace": row.namespace,
                    "name": row.name,
                    "uid": row.uid,
                    "labels": row.labels,
                    "document": row.document,
                },
            )
        elif change.type == "Modified":
            self._connection.execute(_MODIFY, {**key, "l": row.labels, "d": row.document})
        else:
            self._connection.execute(_REMOVE, key)
        if change.reowned or (change.type == "Deleted" and row.owners):
            self._connection.execute(_DISOWN, {"u": row.uid})
        if row.owners and (change.reowned or change.type == "Added"):
            owners = [{"owner_uid": owner, "uid": row.uid} for owner in dict.fromkeys(row.owners)]
            self._connection.execute(_OWN, owners)


def _event(step: Step, at: float) -> dict[str, Any]:  # Any: a row of the events table
    return {
        "revision": step.revision,
        "type": step.type,
        "kind": step.kind,
        "namespace": step.namespace,
        "at": at,
        "size": len(step.document),
        "document": step.document,
    }


class SqlSnapshot:
    """See `shoal.store.backend.Snapshot`. Valid while its transaction is open."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bounds: tuple[int, int] | None = None

    @property
    def head(self) -> int:
        return self._read_bounds()[0]

    @property
    def compacted_revision(self) -> int:
        return self._read_bounds()[1]

    def document(self, kind: str, namespace: str, name: str) -> bytes | None:
        row = self._connection.execute(_DOCUMENT, {"k": kind, "s": namespace, "n": name}).first()
        return None if row is None else row[0]

    def documents(self, query: Query) -> list[tuple[str, str, bytes]]:
        page, _ = _statements(bool(query.namespace), query.after is not None, bool(query.limit))
        if query.selector.requirements:
            page = page.where(*map(_fulfils, query.selector.requirements))
        rows = self._connection.execute(page, _parameters(query)).fetchall()
        return [(row[0], row[1], row[2]) for row in rows]

    def count(self, query: Query) -> int:
        _, count = _statements(bool(query.namespace), query.after is not None, limited=False)
        if query.selector.requirements:
            count = count.where(*map(_fulfils, query.selector.requirements))
        return self._connection.execute(count, _parameters(query)).scalar_one()

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
            revision, compacted = self._connection.execute(_HEAD).one()
            self._bounds = (revision, compacted)
        return self._bounds


@cache
def _statements(
    namespaced: bool, after: bool, limited: bool
) -> tuple[Select[str, str, bytes], Select[int]]:
    """The page of objects, and their number, for `_parameters`; without a selector. Made once, for
    building a statement costs more than running it."""
    conditions: list[ColumnElement[bool]] = [_O.kind == bindparam("k")]
    if namespaced:
        conditions.append(_O.namespace == bindparam("s"))
    if after:
        key = tuple_(
            bindparam("after_s", type_=_O.namespace.type), bindparam("after_n", type_=_O.name.type)
        )
        conditions.append(tuple_(_O.namespace, _O.name) > key)
    page = select(_O.namespace, _O.name, _O.document).where(*conditions)
    page = page.order_by(_O.namespace, _O.name)
    count = select(func.count()).select_from(OBJECTS).where(*conditions)
    return page.limit(bindparam("most")) if limited else page, count


def _parameters(query: Query) -> dict[str, Any]:
    namespace, name = query.after or ("", "")
    given = {"k": query.kind, "s": query.namespace, "after_s": namespace, "after_n": name}
    return {**given, "most": query.limit}


def _fulfils(requirement: Requirement) -> ColumnElement[bool]:
    label = _O.labels[requirement.key].as_string()
    if requirement.operator == "exists":
        return label.is_not(None)
    if requirement.operator == "absent":
        return label.is_(None)
    if requirement.operator == "in":
        return label.in_(requirement.values)
    return or_(label.is_(None), label.not_in(requirement.values))
