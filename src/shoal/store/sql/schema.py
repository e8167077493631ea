"""Makes the tables of a new database, brings old ones up to date, and refuses those from the future.

Alembic is imported only for a database whose schema is not the newest: it costs a tenth of a second
at each start, and a start is what `shoal run` waits for. A new database gets its tables straight from
their definitions; a test proves that the migrations lead to the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError

from shoal import faults
from shoal.objects.errors import Unavailable, VersionSkew
from shoal.store.sql.connect import Database
from shoal.store.sql.failures import translated
from shoal.store.sql.retry import until_free
from shoal.store.sql.tables import HEAD, METADATA, SCHEMA, VERSION
from shoal.store.versions import new_epoch

__all__ = ["Head", "prepare"]

_POSTGRES_LOCK = 0x73686F61
"""An advisory lock: of two servers that start at once, one makes the tables."""


@dataclass(frozen=True)
class Head:
    """Where a store stands when it is opened."""

    epoch: str
    revision: int


def prepare(database: Database) -> Head:
    """Bring the database to the newest schema.

    Raises:
        VersionSkew: a newer Shoal has changed it.
        Unavailable: it cannot be opened or changed.
    """
    try:
        head = until_free(lambda: _prepare(database))
    except DBAPIError as error:
        known = translated(error, database.where)
        raise Unavailable(known.message, hint=known.hint) from error
    faults.point("store.schema.ready")
    return head


def _prepare(database: Database) -> Head:
    with database.writer.begin() as connection:
        if database.sqlite:
            _check_journal(connection, database.where)
        else:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _POSTGRES_LOCK})
        version = _version(connection)
        if version is None:
            METADATA.create_all(connection)
            connection.execute(insert(VERSION), {"version_num": SCHEMA})
        elif version != SCHEMA:
            _upgrade(connection, version, database.where)
        row = connection.execute(select(HEAD.c.epoch, HEAD.c.revision)).first()
        if row is not None:
            return Head(row.epoch, row.revision)
        head = Head(new_epoch(), 0)
        connection.execute(insert(HEAD), {"id": 1, "epoch": head.epoch, "revision": 0, "floor": 0})
        return head


def _check_journal(connection: Connection, where: str) -> None:
    if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
        raise Unavailable(
            f"the file system of {where} cannot share a file between readers and a writer",
            hint="put $SHOAL_HOME on a local disk",
        )


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION.name):
        return None
    return connection.execute(select(VERSION.c.version_num)).scalar()


def _upgrade(connection: Connection, version: str, where: str) -> None:
    from shoal.store import migrations  # late: see the module's docstring

    if version not in migrations.known():
        raise VersionSkew(
            f"the store at {where} has schema {version}, which this Shoal does not know",
            hint="a newer Shoal has opened it: use that one, or another $SHOAL_HOME",
        )
    migrations.upgrade(connection)
