"""The tables of the history's own database, and the version of their shape.

A database that is empty gets them at once; one of this version is used as it is; anything else is
named, with the remedy. No migration framework is loaded for that: there has been one version. Names
begin with `history_`, for in Postgres the store's tables may be beside them.
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

__all__ = ["SCHEMA_VERSION", "ensure", "entry"]

SCHEMA_VERSION = 1

_METADATA = MetaData()
_LOCK = 0x5110A1  # any number of our own: servers that start together make the tables in turn

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

_version = Table("history_version", _METADATA, Column("version", Integer, nullable=False))


def ensure(connection: Connection) -> None:
    """Make the tables if there are none; within the connection's transaction.

    Raises:
        VersionSkew: the database is of another version.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    if not inspect(connection).has_table(_version.name):
        _METADATA.create_all(connection)
        connection.execute(_version.insert().values(version=SCHEMA_VERSION))
        return
    found = connection.execute(select(_version.c.version)).scalar_one()
    if found != SCHEMA_VERSION:
        raise VersionSkew(
            f"the history has schema {found}, this Shoal knows schema {SCHEMA_VERSION}",
            hint="run the Shoal that wrote it, or move its database away to begin a new history",
        )
