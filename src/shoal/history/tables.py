"""The tables of the history's own database, and the version of their shape.

A database that is empty gets them at once; one of an earlier version gets the tables that it lacks; a
later one is refused, with the remedy. No migration framework is loaded for that: versions have only
added tables (2: `history_points`). Names begin with `history_`, for in Postgres the store's tables may
be beside them.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    inspect,
    select,
    text,
)

from shoal.objects.errors import VersionSkew

SCHEMA_VERSION = 2

_METADATA = MetaData()
# any numbers of our own: servers that start together make the tables in turn, and append in turn
_TABLES_LOCK = 0x5110A1
_POINTS_LOCK = 0x5110A2

entry = Table(
    "history_entries",
    _METADATA,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("type", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("value", Double),
    Column("data", Text, nullable=False),
    Index("history_entries_order", "at", "seq"),
    Index("history_entries_object", "kind", "namespace", "name", "at", "seq"),
    sqlite_autoincrement=True,
)
"""One row per entry; `seq` is the order of appending."""

point = Table(
    "history_points",
    _METADATA,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("writer", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("value", Double),
    Column("step", BigInteger),
    Column("at", Double, nullable=False),
    Column("role", Text, nullable=False),
    Column("index", Integer, nullable=False),
    Column("incarnation", Integer, nullable=False),
    Index("history_points_once", "uid", "writer", "sequence", unique=True),
    Index("history_points_job", "namespace", "job", "seq"),
    Index("history_points_uid", "uid", "seq"),
    sqlite_autoincrement=True,
)
"""One row per metric point; `seq` is its order. A value that is not a number is NULL."""

_version = Table("history_version", _METADATA, Column("version", Integer, nullable=False))


def ensure(connection: Connection) -> None:
    """Make the tables that are not there; within the connection's transaction.

    Raises:
        VersionSkew: the database is of a later version.
    """
    _lock(connection, _TABLES_LOCK)
    found = 0
    if inspect(connection).has_table(_version.name):
        found = connection.execute(select(_version.c.version)).scalar_one()
    if found == SCHEMA_VERSION:
        return
    if found > SCHEMA_VERSION:
        raise VersionSkew(
            f"the history has schema {found}, this Shoal knows schema {SCHEMA_VERSION}",
            hint="run the Shoal that wrote it, or move its database away to begin a new history",
        )
    _METADATA.create_all(connection)
    connection.execute(_version.delete())
    connection.execute(_version.insert().values(version=SCHEMA_VERSION))


def lock_appends(connection: Connection) -> None:
    """Let one transaction at a time append points, so that they become visible in their order."""
    _lock(connection, _POINTS_LOCK)


def _lock(connection: Connection, number: int) -> None:
    if connection.dialect.name == "postgresql":  # SQLite has one writer
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": number})
