from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import event

from shoal.clock import SystemClock
from shoal.objects.errors import Conflict, Invalid, Unavailable
from shoal.store.backend import Change, Row, Transaction, Window
from shoal.store.sql.connect import Database, connect
from shoal.store.sql.schema import prepare
from shoal.store.sql.writer import Trimmer, Writer
from shoal.store.watch_cache import WatchCache
from shoal.testing.store.harness import together


@dataclass
class Bench:
    """A writer with nothing above it, and how often it has committed."""

    database: Database
    writer: Writer
    cache: WatchCache
    commits: int = 0

    def add(self, name: str, uid: str = "") -> None:
        self.writer.write(lambda transaction: put(transaction, name, uid or name))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    database = connect(tmp_path / "store.db")
    clock = SystemClock()
    cache = WatchCache(epoch=prepare(database).epoch, window=Window(), clock=clock)
    bench = Bench(database, Writer(database, cache, clock, Trimmer(database, Window(), clock)), cache)

    def committed(_: object) -> None:
        bench.commits += 1

    event.listen(database.writer, "commit", committed)
    yield bench
    bench.writer.close()
    database.dispose()


def put(transaction: Transaction, name: str, uid: str) -> str:
    revision, version = transaction.next_version()
    row = Row("Job", uid, b"{}", "default", name, {}, ())
    transaction.apply((Change(revision, "Added", row),))
    return version


def queue_behind(bench: Bench, actions: list[threading.Thread]) -> None:
    """Hold the writer up until all actions are queued."""
    started, release = threading.Event(), threading.Event()

    def block(_: Transaction) -> None:
        started.set()
        release.wait(30)

    blocker = threading.Thread(target=lambda: bench.writer.write(block))
    blocker.start()
    assert started.wait(30)
    for action in actions:
        action.start()
    deadline = time.monotonic() + 30
    while bench.writer.waiting() < len(actions):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    release.set()
    for thread in (blocker, *actions):
        thread.join(30)


def test_what_waits_is_committed_together(bench: Bench) -> None:
    bench.add("first")
    before = bench.commits
    queue_behind(bench, [threading.Thread(target=bench.add, args=(f"j{n}",)) for n in range(50)])
    assert bench.commits - before <= 3  # the one held up, the fifty, and perhaps a trim
    assert bench.cache.head == 51


def test_one_that_the_database_refuses_fails_alone(bench: Bench) -> None:
    bench.add("taken", "u1")
    results: dict[str, object] = {}

    def attempt(name: str, uid: str) -> None:
        try:
            bench.add(name, uid)
            results[name] = "stored"
        except Invalid as error:
            results[name] = error.message

    wanted = [(f"j{number}", f"v{number}") for number in range(5)]
    threads = [threading.Thread(target=attempt, args=each) for each in [*wanted, ("bad", "u1")]]
    queue_behind(bench, threads)
    assert "cannot hold this" in str(results.pop("bad"))
    assert results == {f"j{number}": "stored" for number in range(5)}


def test_a_refusal_reaches_its_caller_and_nobody_else(bench: Bench) -> None:
    def refuse(_: Transaction) -> None:
        raise Conflict("not now")

    def bug(_: Transaction) -> None:
        raise ZeroDivisionError

    def refused() -> None:
        with pytest.raises(Conflict, match="not now"):
            bench.writer.write(refuse)

    def failed() -> None:
        with pytest.raises(ZeroDivisionError):
            bench.writer.write(bug)

    together(refused, failed, *(lambda n=n: bench.add(f"j{n}") for n in range(6)))
    assert bench.cache.head >= 6


def test_a_writer_that_cannot_trim_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Trimmer, "after_writes", fail)
    bench.add("a")
    bench.add("b")
    assert bench.cache.head == 2
    assert "could not be trimmed" in caplog.text


def test_what_is_queued_is_finished_before_the_end(bench: Bench) -> None:
    threads = [threading.Thread(target=bench.add, args=(f"j{n}",)) for n in range(20)]
    queue_behind(bench, threads)
    bench.writer.close()
    assert bench.cache.head == 20
    with pytest.raises(Unavailable, match="closed"):
        bench.add("late")
