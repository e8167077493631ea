"""The tables of the newest schema, and bringing a database to it; a newer schema is refused.

A change of a table needs a migration beside it (`../migrations`). Table names begin with `store_`: a
Postgres database may hold the tables of others too. Keys compare byte by byte, as they do in memory,
whatever the database's language.

Alembic is imported only for a database without the newest schema: it costs a tenth of a second
at each start, and a start is what `shoal run` waits for. A new database gets its tables straight from
their definitions; a test proves that the migrations lead to the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError

from shoal import faults
from shoal.objects.errors import Unavailable, VersionSkew
from shoal.store.backend import new_epoch
from shoal.store.sql.connect import Database, translated, until_free

SCHEMA = "0001"
"""The newest migration: what `store_schema` says when the database is like the tables below."""

CHANNEL = "shoal_store"
"""Postgres notifies its listeners of every commit that has events."""

METADATA = MetaData()

_KEY = Text().with_variant(Text(collation="C"), "postgresql")
_REVISION = BigInteger().with_variant(Integer(), "sqlite")

VERSION = Table(
    "store_schema",
    METADATA,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="store_schema_pkc"),
)
"""Kept by Alembic."""

HEAD = Table(
    "store_head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Text, nullable=False),
    Column("revision", _REVISION, nullable=False),
    Column("floor", _REVISION, nullable=False),
)
"""One row: the newest revision, and (`floor`) the compacted revision, the newest
one without its event. Every writing
transaction locks it first, so revisions become visible in their order."""

OBJECTS = Table(
    "store_objects",
    METADATA,
    Column("kind", _KEY, primary_key=True),
    Column("namespace", _KEY, primary_key=True),
    Column("name", _KEY, primary_key=True),
    Column("uid", Text, nullable=False),
    Column("labels", JSON().with_variant(JSONB(), "postgresql"), nullable=False),
    Column("document", LargeBinary, nullable=False),
    Index("store_objects_uid", "uid", unique=True),
)

OWNERS = Table(
    "store_owners",
    METADATA,
    Column("owner_uid", Text, primary_key=True),
    Column("uid", Text, primary_key=True),
    Index("store_owners_uid", "uid"),
)
"""The objects to delete with an owner."""

EVENTS = Table(
    "store_events",
    METADATA,
    Column("revision", _REVISION, primary_key=True, autoincrement=False),
    Column("type", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("size", Integer, nullable=False),
    Column("document", LargeBinary, nullable=False),
)
"""The window that watches resume from."""

LEASES = Table(
    "store_leases",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("duration_seconds", Float, nullable=False),
    Column("renewals", BigInteger, nullable=False),
)


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
