"""The tables of the newest schema. A change here needs a migration beside it (`../migrations`).

Names begin with `store_`: a Postgres database may hold the tables of others too. Keys compare byte by
byte, as they do in memory, whatever the database's language.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB

__all__ = ["CHANNEL", "EVENTS", "HEAD", "LEASES", "METADATA", "OBJECTS", "OWNERS", "SCHEMA", "VERSION"]

SCHEMA = "0001"
"""The newest migration: what `store_schema` says when the database is like the tables below."""

CHANNEL = "shoal_store"
"""Postgres tells those who listen to it of every commit that has events."""

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
"""One row: the newest revision, and the newest one whose event is no longer kept. Every writing
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
"""Who goes when an owner goes."""

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
