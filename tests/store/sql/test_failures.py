"""What happens to a SQL store when its disk, its file or its neighbours misbehave."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shoal.objects.errors import Invalid, ShoalError, Unavailable, VersionSkew
from shoal.objects.kinds import JOB
from shoal.store.base import SYSTEM, Store
from shoal.store.sql import SqlStore, open_sql
from shoal.store.sql.reserve import RESERVE_BYTES
from shoal.testing.store.harness import collect, job, names, start_of, together
from tests.support.disk import fill, small_disk
from tests.support.postgres import PostgresServer

WRITER = "import sys; from shoal.testing.store.crash import main; main(*sys.argv[1:])"
SMALL_WINDOW = (
    "from shoal.store import sql; sql.small = lambda p: sql.open_sql(p, window=sql.Window(count=20)); "
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    store = open_sql(path)
    yield store
    store.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        yield disk


def test_only_its_owner_can_read_the_files(store: Store, path: Path) -> None:
    store.create(job("a"), actor=SYSTEM)
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_the_disk_is_full(disk: Path) -> None:
    store = open_sql(disk / "store.db")
    store.create(job("before"), actor=SYSTEM)
    watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
    filler = fill(disk)
    written = 0
    with pytest.raises(Unavailable, match="is full") as caught:
        for number in range(1000):
            store.create(job(f"j{number}", annotations={"big": "x" * 3000}), actor=SYSTEM)
            written += 1
    assert "free some space" in caught.value.hint
    assert len(store.list(JOB, actor=SYSTEM).records) == 1 + written
    with pytest.raises(Unavailable, match="is full"):
        store.delete(JOB, "default", "before", actor=SYSTEM)
    filler.unlink()
    store.create(job("after"), actor=SYSTEM)
    assert len(collect(watch, written + 1)) == written + 1
    store.close()
    again = open_sql(disk / "store.db")
    assert len(again.list(JOB, actor=SYSTEM).records) == 2 + written
    again.close()


def test_on_a_full_disk_what_is_there_can_be_changed_and_deleted(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        store = open_sql(disk / "store.db")
        for number in range(20):
            store.create(job(f"j{number}"), actor=SYSTEM)
        filler = fill(disk)
        with pytest.raises(Unavailable, match="is full"):
            for number in range(1000):
                store.create(job(f"more{number}", annotations={"big": "x" * 3000}), actor=SYSTEM)
        for number in range(19):
            store.delete(JOB, "default", f"j{number}", actor=SYSTEM)
        with pytest.raises(Unavailable, match="full"):
            store.create(job("new"), actor=SYSTEM)
        filler.unlink()
        store.delete(JOB, "default", "j19", actor=SYSTEM)
        store.create(job("new"), actor=SYSTEM)
        assert (disk / "store.db-reserve").stat().st_size == RESERVE_BYTES
        store.close()


def test_the_disk_fills_up_under_many_writers(disk: Path) -> None:
    store = open_sql(disk / "store.db")
    made: list[str] = []

    def write(number: int) -> None:
        for turn in range(1000):
            name = f"j{number}-{turn}"
            try:
                store.create(job(name, annotations={"big": "x" * 3000}), actor=SYSTEM)
            except Unavailable:
                return
            made.append(name)

    together(*(partial(write, number) for number in range(4)))
    assert names(store.list(JOB, actor=SYSTEM)) == sorted(made)
    store.close()


@pytest.mark.slow
def test_a_log_that_was_torn_is_read_up_to_its_last_whole_commit(path: Path, tmp_path: Path) -> None:
    store = open_sql(path)
    for number in range(20):
        store.create(job(f"j{number:02}"), actor=SYSTEM)
    wal = Path(f"{path}-wal").read_bytes()
    main = path.read_bytes()
    store.close()
    seen: list[int] = []
    for keep in range(len(wal), 0, -len(wal) // 15):
        copy = tmp_path / f"torn-{keep}.db"
        copy.write_bytes(main)
        Path(f"{copy}-wal").write_bytes(wal[:keep])
        torn = open_sql(copy)
        found = names(torn.list(JOB, actor=SYSTEM))
        assert found == [f"j{number:02}" for number in range(len(found))]
        torn.create(job("zz"), actor=SYSTEM)
        assert names(torn.list(JOB, actor=SYSTEM)) == [*found, "zz"]
        torn.close()
        seen.append(len(found))
    assert seen[0] == 20
    assert seen[-1] < 20


@pytest.mark.slow
def test_another_process_that_holds_the_file_is_waited_for(store: Store, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.5, other.rollback)
    release.start()
    begun = time.monotonic()
    store.create(job("a"), actor=SYSTEM)
    assert time.monotonic() - begun > 0.3
    release.join()
    other.close()


@pytest.mark.slow
def test_waiting_for_another_process_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.store.sql.connect._SQLITE_POLL_SECONDS", 0.05)
    monkeypatch.setattr("shoal.store.sql.connect.BUSY_SECONDS", 0.3)
    store = open_sql(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="busy"):
        store.create(job("a"), actor=SYSTEM)
    assert store.list(JOB, actor=SYSTEM).records == ()
    other.rollback()
    other.close()
    store.create(job("a"), actor=SYSTEM)
    store.close()


def test_readers_do_not_wait_for_a_writer(store: Store, path: Path) -> None:
    store.create(job("a"), actor=SYSTEM)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert names(store.list(JOB, actor=SYSTEM)) == ["a"]
    other.rollback()
    other.close()


@pytest.mark.slow
@pytest.mark.process
def test_two_processes_write_at_once(store: Store, path: Path) -> None:
    """Nobody is told that the database is locked, and watches here tell what is written there."""
    watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
    command = [sys.executable, "-c", WRITER, "shoal.store.sql:open_sql", str(path), "other"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for number in range(100):
            store.create(job(f"mine-{number}"), actor=SYSTEM)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
    assert errors == b""
    left: dict[str, bytes] = {}
    deadline = time.monotonic() + 30
    while left != (now := current(store)):
        assert time.monotonic() < deadline
        for event in watch.wait(0.2):
            if event.record is None:
                continue
            name = event.record.object.metadata.name
            left[name] = event.record.document
            if event.type == "Deleted":
                del left[name]
    assert len([name for name in now if name.startswith("mine")]) == 100
    assert len(now) > 100
    watch.close()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    "point", ["store.write.committed", "store.events.trimmed", "store.schema.ready"]
)
def test_killed_at_a_named_point(path: Path, point: str) -> None:
    nth = 1 if point.endswith("ready") else 5
    command = [sys.executable, "-c", SMALL_WINDOW + WRITER, "shoal.store.sql:small", str(path), "x"]
    environment = {**os.environ, "SHOAL_FAULTS": f"{point}:kill:{nth}"}
    killed = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    store = open_sql(path)
    found = current(store)
    for line in killed.stdout.decode().splitlines():
        name, _, what = line.split()
        assert name in found or what == "deleted" or int(name.rpartition("-")[2]) % 5 == 4
    store.create(job("after"), actor=SYSTEM)
    store.close()


def test_many_open_a_new_file_at_once(path: Path) -> None:
    def use(number: int) -> None:
        store = open_sql(path)
        store.create(job(f"j{number}"), actor=SYSTEM)
        store.close()

    together(*(partial(use, number) for number in range(8)))
    store = open_sql(path)
    assert names(store.list(JOB, actor=SYSTEM)) == [f"j{number}" for number in range(8)]
    store.close()


def test_a_file_system_without_shared_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.store.sql.connect._WRITER_PRAGMAS", ("PRAGMA journal_mode=DELETE",))
    with pytest.raises(Unavailable, match="cannot share a file") as caught:
        open_sql(path)
    assert "local disk" in caught.value.hint


def test_a_reader_that_is_woken_may_close_the_store(path: Path) -> None:
    store = open_sql(path)
    watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
    watch.on_ready(store.close)
    store.create(job("a"), actor=SYSTEM)
    with pytest.raises(Unavailable):
        store.create(job("b"), actor=SYSTEM)


def test_places_that_hold_no_store(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("nothing that SQLite knows\n" * 100)
    with pytest.raises(Unavailable, match="not a database"):
        open_sql(tmp_path / "text.db")
    with pytest.raises(Unavailable, match="cannot be opened: No such file"):
        open_sql(tmp_path / "nowhere" / "store.db")
    with pytest.raises(Unavailable, match="unable to open"):
        open_sql(tmp_path)


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "what://", "://"])
def test_addresses_that_mean_nothing(url: str) -> None:
    with pytest.raises(Invalid):
        open_sql(url)


def test_a_url_of_a_file(tmp_path: Path) -> None:
    store = open_sql(f"sqlite:///{tmp_path}/store.db")
    store.close()
    assert (tmp_path / "store.db").exists()


def test_a_schema_of_the_future(path: Path) -> None:
    open_sql(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE store_schema SET version_num = '9999'")
    connection.close()
    with pytest.raises(VersionSkew, match="9999") as caught:
        open_sql(path)
    assert "newer Shoal" in caught.value.hint


def test_a_closed_store_says_so(path: Path) -> None:
    store = open_sql(path)
    store.close()
    store.close()
    for call in (
        lambda: store.create(job("a"), actor=SYSTEM),
        lambda: store.list(JOB, actor=SYSTEM),
        lambda: store.acquire("leader", "a", 1.0, actor=SYSTEM),
    ):
        with pytest.raises(Unavailable, match="closed"):
            call()


def test_the_file_is_removed_under_an_open_store(path: Path) -> None:
    """Nothing crashes; what to do is said, or the open file goes on."""
    store = open_sql(path)
    store.create(job("a"), actor=SYSTEM)
    shutil.rmtree(path.parent)
    try:
        store.create(job("b"), actor=SYSTEM)
    except ShoalError as error:
        assert error.message
    store.close()


@pytest.mark.postgres
@pytest.mark.process
@pytest.mark.slow
def test_the_server_of_the_database_is_restarted(postgres_alone: PostgresServer) -> None:
    store = open_sql(postgres_alone.database())
    store.create(job("a"), actor=SYSTEM)
    watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
    postgres_alone.stop(signal.SIGQUIT)
    for call in (lambda: store.list(JOB, actor=SYSTEM), lambda: store.create(job("b"), actor=SYSTEM)):
        with pytest.raises(Unavailable, match="does not answer"):
            call()
    postgres_alone.start()
    store.create(job("b"), actor=SYSTEM)
    assert names(store.list(JOB, actor=SYSTEM)) == ["a", "b"]
    other = open_sql(postgres_alone.url)
    other.create(job("c"), actor=SYSTEM)
    other.close()
    assert len(collect(watch, 2)) == 2
    store.close()


@pytest.mark.postgres
@pytest.mark.process
def test_a_password_is_not_shown(postgres: PostgresServer) -> None:
    url = postgres.database().replace("shoal@", "shoal:hunter2@").replace("shoal-pg-", "nowhere-")
    with pytest.raises(Unavailable) as caught:
        open_sql(url)
    assert "hunter2" not in str(caught.value) + caught.value.hint


def current(store: Store) -> dict[str, bytes]:
    return {r.object.metadata.name: r.document for r in store.list(JOB, actor=SYSTEM).records}
