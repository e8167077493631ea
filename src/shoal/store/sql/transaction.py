"""The rules' view of a SQL database: one writing transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    insert,
    select,
    text,
    update,
)

from shoal.store.backend import Change, Found, LeaseRow, Step
from shoal.store.sql.tables import CHANNEL, EVENTS, HEAD, LEASES, OBJECTS, OWNERS
from shoal.store.versions import version_text

__all__ = ["SqlTransaction"]

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


class SqlTransaction:
    """See `shoal.store.backend.Transaction`. Locks the head for as long as it is open."""

    def __init__(self, connection: Connection, epoch: str) -> None:
        self._connection = connection
        self._epoch = epoch
        self.before: int
        self.before, self.floor = connection.execute(_HEAD_LOCKED).one()
        self.revision = self.before
        self.steps: list[Step] = []

    def find(self, kind: str, namespace: str, name: str) -> Found | None:
        """See `View.find`."""
        row = self._connection.execute(_FIND, {"k": kind, "s": namespace, "n": name}).first()
        return None if row is None else Found(*row)

    def has_uid(self, uid: str) -> bool:
        """See `View.has_uid`."""
        return self._connection.execute(_HAS_UID, {"u": uid}).first() is not None

    def owned_by(self, uid: str) -> Sequence[Found]:
        """See `View.owned_by`."""
        return [Found(*row) for row in self._connection.execute(_OWNED, {"u": uid})]

    def next_version(self) -> tuple[int, str]:
        """See `View.next_version`."""
        self.revision += 1
        return self.revision, version_text(self._epoch, self.revision)

    def apply(self, changes: tuple[Change, ...]) -> None:
        """See `Transaction.apply`. Events and the head are written by `finish`."""
        for change in changes:
            self._apply(change)
            self.steps.append(change.step())

    def lease(self, name: str) -> LeaseRow | None:
        """See `Transaction.lease`."""
        row = self._connection.execute(_LEASE, {"n": name}).first()
        return None if row is None else LeaseRow(*row)

    def put_lease(self, row: LeaseRow) -> None:
        """See `Transaction.put_lease`."""
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
