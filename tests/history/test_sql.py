from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.history.base import Entry, History, Retention
from shoal.history.sql import SqlHistory
from shoal.objects.errors import Invalid, Unavailable, VersionSkew
from shoal.testing.history import JOB, HistoryContract, entry, ids, point
from tests.support.postgres import PostgresServer, postgres_server


class TestSqliteHistory(HistoryContract):
    @pytest.fixture
    def history(self, tmp_path: Path) -> Iterator[History]:
        history = SqlHistory(tmp_path / "history.db")
        yield history
        history.close()


@pytest.mark.postgres
@pytest.mark.slow
class TestPostgresHistory(HistoryContract):
    @pytest.fixture
    def history(self, postgres: PostgresServer) -> Iterator[History]:
        history = SqlHistory(postgres.database())
        yield history
        history.close()

    def test_servers_that_start_together_make_the_tables_once(self, postgres: PostgresServer) -> None:
        url, made = postgres.database(), list[SqlHistory]()
        threads = [threading.Thread(target=lambda: made.append(SqlHistory(url))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        assert len(made) == 4
        made[0].append((entry("a", 1.0),))
        made[0].flush()
        assert ids(made[3]) == ["a"]
        for each in made:
            each.close()

    def test_a_server_that_restarts_loses_nothing(self) -> None:
        with postgres_server() as server:
            url = server.database()
            history = SqlHistory(url)
            history.append((entry("before", 1.0),))
            assert ids(history) == ["before"]
            server.stop()
            history.append((entry("meanwhile", 2.0),))
            with pytest.raises(Unavailable, match="does not answer"):
                history.entries()
            server.start()
            history.close()
            again = SqlHistory(url)
            assert ids(again) == ["before", "meanwhile"]
            again.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/history.db"


@pytest.mark.parametrize("address", ["mysql://host/db", "http://host", "://"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(Invalid):
        SqlHistory(address)


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    history = SqlHistory(tmp_path / "history.db")
    history.append((entry("a", 1.0),))
    history.flush()
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
    history.close()


def test_what_was_appended_is_there_after_close(url: str) -> None:
    first = SqlHistory(url)
    first.append(tuple(entry(str(number), float(number)) for number in range(1000)))
    first.close()
    second = SqlHistory(url)
    assert len(second.entries()) == 1000
    second.close()


def test_appending_reaches_the_disk_by_itself(url: str, tmp_path: Path) -> None:
    history = SqlHistory(url)
    history.append((entry("a", 1.0),))
    other = SqlHistory(url)
    try:
        while not ids(other):
            pass  # the test's own timeout is the deadline
    finally:
        other.close()
        history.close()


def test_a_database_of_another_version_is_named(url: str, tmp_path: Path) -> None:
    SqlHistory(url).close()
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.execute("UPDATE history_version SET version = 99")
    connection.close()
    with pytest.raises(VersionSkew, match="schema 99"):
        SqlHistory(url)


def test_a_database_of_the_first_version_gets_the_table_of_points(url: str, tmp_path: Path) -> None:
    first = SqlHistory(url)
    first.append((entry("before", 1.0),))
    first.close()
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.execute("DROP TABLE history_points")
        connection.execute("UPDATE history_version SET version = 1")
    connection.close()
    for _ in range(2):
        again = SqlHistory(url)
        again.append_points((point(1),))
        assert ids(again) == ["before"]
        assert [each.sequence for each in again.points("team-a")] == [1]
        again.close()


def test_threads_that_append_points_at_once_keep_the_order(url: str) -> None:
    history, seen = SqlHistory(url), list[int]()
    writers = [
        threading.Thread(
            target=lambda name=str(writer): [
                history.append_points([point(10 * batch + at, writer=name) for at in range(10)])
                for batch in range(10)
            ]
        )
        for writer in range(4)
    ]
    for writer in writers:
        writer.start()
    while len(seen) < 400:  # the test's own timeout is the deadline
        seen += [each.order for each in history.points("team-a", after=seen[-1] if seen else 0)]
    for writer in writers:
        writer.join()
    assert seen == [each.order for each in history.points("team-a")]
    history.close()


def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be opened"):
        SqlHistory(f"sqlite:///{tmp_path}/none/history.db")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_bytes(b"nothing that SQLite knows" * 100)
    with pytest.raises(Unavailable):
        SqlHistory(f"sqlite:///{tmp_path}/history.db")


def test_one_entry_that_cannot_be_stored_harms_no_other(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    history = SqlHistory(url)
    bad = Entry(id="bad", type="event", about=JOB, at=float("nan"))
    history.append((entry("a", 1.0), bad, entry("b", 2.0)))
    assert ids(history) == ["a", "b"]
    assert "cannot be kept in history and is dropped: {'id': 'bad'" in caplog.text
    history.close()


def test_trimming_in_several_transactions(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.history.sql._TRIM_ROWS", 7)
    history = SqlHistory(url)
    history.append(tuple(entry(str(number), float(number)) for number in range(100)))
    assert history.trim(Retention(max_age_seconds=50.0), now=100.0) == 50
    assert history.trim(Retention(max_age_seconds=1e9, max_entries=11), now=100.0) == 39
    assert ids(history) == [str(number) for number in range(89, 100)]
    history.close()
