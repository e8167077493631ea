from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select

from shoal.objects.errors import Expired
from shoal.objects.kinds import JOB
from shoal.store.base import SYSTEM
from shoal.store.sql import Window, open_sql
from shoal.store.sql.schema import EVENTS
from shoal.store.sql.writer import Trimmer
from shoal.testing.store.harness import job, start_of


@pytest.mark.slow
def test_the_table_stays_near_its_window(tmp_path: Path) -> None:
    store = open_sql(tmp_path / "store.db", window=Window(count=20))
    for number in range(100):
        store.create(job(f"j{number}"), actor=SYSTEM)
    store.close()
    kept = revisions(tmp_path)
    assert 20 <= len(kept) <= 23
    assert kept == list(range(101 - len(kept), 101))


@pytest.mark.slow
def test_a_smaller_window_drops_the_rest_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_sql(tmp_path / "store.db")
    start = start_of(store)
    for number in range(50):
        store.create(job(f"j{number}"), actor=SYSTEM)
    store.close()
    monkeypatch.setattr("shoal.store.sql.writer._TRIM_PORTION", 7)
    dropped: list[int] = []
    trim = Trimmer._trim  # pyright: ignore[reportPrivateUsage]

    def counted(self: Trimmer, connection: Connection, head: int) -> tuple[bool, bool]:
        before = connection.execute(select(func.count()).select_from(EVENTS)).scalar_one()
        found = trim(self, connection, head)
        after = connection.execute(select(func.count()).select_from(EVENTS)).scalar_one()
        dropped.append(before - after)
        return found

    monkeypatch.setattr(Trimmer, "_trim", counted)
    store = open_sql(tmp_path / "store.db", window=Window(count=10))
    for number in range(10):
        store.create(job(f"k{number}"), actor=SYSTEM)
    with pytest.raises(Expired):
        store.watch(JOB, actor=SYSTEM, version=start)
    store.close()
    assert len(revisions(tmp_path)) <= 11
    assert max(dropped) <= 7 and sum(dropped) >= 40


def revisions(folder: Path) -> list[int]:
    with sqlite3.connect(folder / "store.db") as connection:
        found = [each[0] for each in connection.execute("SELECT revision FROM store_events ORDER BY 1")]
    connection.close()
    return found
