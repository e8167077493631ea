"""Old databases are brought up to date, and the migrations lead to the tables that new ones get."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, select

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.store import migrations
from shoal.store.base import SYSTEM
from shoal.store.sql import open_sql
from shoal.store.sql.connect import Database, connect
from shoal.store.sql.schema import METADATA, SCHEMA, VERSION
from shoal.testing.store.harness import job
from tests.support.postgres import PostgresServer

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres])])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Two empty ones."""
    if request.param == "sqlite":
        return [str(tmp_path / "one.db"), str(tmp_path / "two.db")]
    server: PostgresServer = request.getfixturevalue("postgres")
    return [server.database(), server.database()]


def test_the_newest_migration_is_the_newest_schema() -> None:
    assert migrations.known()[0] == SCHEMA


def test_each_older_schema_has_its_golden_database() -> None:
    assert {path.stem for path in GOLDEN.glob("*.sql")} == set(migrations.known())


@pytest.mark.slow
def test_a_migrated_database_equals_a_new_one(databases: list[str]) -> None:
    made, migrated = databases
    open_sql(made).close()
    old = connect(migrated)
    with old.writer.begin() as connection:
        migrations.upgrade(connection)
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION.name, "compare_type": True}
        )
        assert compare_metadata(context, METADATA) == []
        assert connection.execute(select(VERSION.c.version_num)).scalar() == SCHEMA
    new = connect(made)
    assert shape(old) == shape(new)
    old.dispose()
    new.dispose()
    store = open_sql(migrated)
    store.create(job("a"), actor=SYSTEM)
    store.close()


@pytest.mark.parametrize("schema", sorted(path.stem for path in GOLDEN.glob("*.sql")))
def test_a_store_of_each_older_schema_opens(schema: str, tmp_path: Path) -> None:
    """The golden files are what `sqlite3 store.db .dump` gave when the schema was the newest."""
    path = tmp_path / "store.db"
    with sqlite3.connect(path) as connection:
        connection.executescript((GOLDEN / f"{schema}.sql").read_text())
    connection.close()
    store = open_sql(path)
    found = store.list(JOB, actor=SYSTEM)
    assert [record.object.key for record in found.records] == [("team-a", "child"), ("team-a", "digits")]
    digits = store.get(Job, "team-a", "digits", actor=SYSTEM)
    assert digits.metadata.labels == {"team": "a"}
    assert digits.status.phase == "Running"
    assert store.acquire("leader", "another", 15.0, actor=SYSTEM) is None
    assert store.acquire("leader", "golden", 15.0, actor=SYSTEM) is not None
    watch = store.watch(JOB, actor=SYSTEM, version=digits.metadata.resource_version)
    store.delete(JOB, "team-a", "digits", actor=SYSTEM)
    assert [event.type for event in watch.poll()] == ["Added", "Deleted", "Deleted"]
    store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version_num FROM store_schema").fetchall() == [(SCHEMA,)]
    connection.close()


def shape(database: Database) -> dict[str, object]:
    """Tables, columns, keys and indexes, as the database has them."""
    found: dict[str, object] = {}
    with database.reader.connect() as connection:
        inspector = inspect(connection)
        for table in sorted(inspector.get_table_names()):
            columns = [
                (each["name"], str(each["type"]), each["nullable"])
                for each in inspector.get_columns(table)
            ]
            keys = inspector.get_pk_constraint(table)["constrained_columns"]
            indexes = [
                (each["name"], each["column_names"], bool(each["unique"]))
                for each in inspector.get_indexes(table)
            ]
            found[table] = (columns, keys, sorted(indexes, key=str))
    return found
