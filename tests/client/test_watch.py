from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from shoal.client import Client, watch
from shoal.client.watch import Change
from shoal.objects.errors import Expired, Forbidden, Unavailable
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.store.base import SYSTEM, Event, Watch
from shoal.store.memory import MemoryStore, Window
from tests.server.harness import LiveServer, a_job, eventually


def names(events: list[Event]) -> list[str]:
    return [event.record.object.metadata.name for event in events if event.record]


def take(watching: Watch, count: int) -> list[Event]:
    events: list[Event] = []
    deadline = time.monotonic() + 20
    while len(events) < count and time.monotonic() < deadline:
        events += [event for event in watching.wait(1.0) if event.type != "Bookmark"]
    return events


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LiveServer]:
    """A server whose store remembers ten changes."""
    live = LiveServer(tmp_path / "small", store=MemoryStore(window=Window(count=10)))
    yield live
    live.close()


@pytest.mark.slow
def test_a_watch_outlives_its_server(server: LiveServer, client: Client) -> None:
    watching = client.watch(JOB, version=client.list(JOB).version)
    client.create(a_job("first"))
    assert names(take(watching, 1)) == ["first"]
    for number in range(3):
        server.stop()
        server.store.create(a_job(f"away-{number}"), actor=SYSTEM)
        server.start()
        client.create(a_job(f"back-{number}"))
        assert names(take(watching, 2)) == [f"away-{number}", f"back-{number}"]
    watching.close()


@pytest.mark.slow
def test_a_watch_that_was_away_too_long_ends(small: LiveServer) -> None:
    with small.client() as client:
        watching = client.watch(JOB, version=client.list(JOB).version)
        small.stop()
        for number in range(100):
            small.store.create(a_job(f"job-{number}"), actor=SYSTEM)
        small.start()
        with pytest.raises(Expired):
            take(watching, 1)
        with pytest.raises(Expired):
            watching.poll()
        watching.close()


@pytest.mark.slow
def test_a_watch_gives_up_when_nobody_comes_back(
    server: LiveServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_LOST_SECONDS", 0.2)
    client.transport.patience_seconds = 0.1
    watching = client.watch(JOB, version=client.list(JOB).version)
    server.stop()
    with pytest.raises(Unavailable):
        take(watching, 1)
    watching.close()
    server.start()


@pytest.mark.slow
def test_what_is_not_fetched_waits_elsewhere(small: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded number of events waits in the client, some in the sockets, and the server forgets."""
    monkeypatch.setattr(watch, "_MOST_QUEUED", 5)
    with small.client() as client:
        watching = client.watch(JOB, version=client.list(JOB).version)
        for number in range(60):
            large = Metadata(name=f"job-{number:02}", annotations={"large": "x" * 100_000})
            small.store.create(msgspec.structs.replace(a_job(), metadata=large), actor=SYSTEM)
        found: list[Event] = []

        def read_all() -> None:
            while True:
                found.extend(watching.wait(5.0))

        with pytest.raises(Expired):
            read_all()
        seen = names(found)
        assert seen == [f"job-{number:02}" for number in range(len(seen))]
        assert len(seen) < 60
        watching.close()


def test_closing_ends_a_wait(client: Client) -> None:
    watching = client.watch(JOB, version=client.list(JOB).version)
    results: list[list[Event]] = []
    waiting = threading.Thread(target=lambda: results.append(watching.wait(60.0)))
    waiting.start()
    watching.close()
    waiting.join(10)
    assert results == [[]]


def test_whoever_waits_is_woken(client: Client) -> None:
    watching = client.watch(JOB, version=client.list(JOB).version)
    woken = threading.Event()
    watching.on_ready(woken.set)
    client.create(a_job())
    assert woken.wait(20)
    assert names(watching.poll()) == ["train"]
    watching.close()


def reader(client: Client) -> tuple[list[Change], threading.Thread]:
    changes: list[Change] = []

    def run() -> None:
        with suppress(Unavailable):  # the test closes the client
            changes.extend(client.reflect(JOB))

    thread = threading.Thread(target=run)
    thread.start()
    return changes, thread


def told(changes: list[Change]) -> list[tuple[str, str]]:
    return [(c.type, c.record.object.metadata.name if c.record else "") for c in changes]


def test_reflect_gives_what_there_is_and_then_each_change(client: Client) -> None:
    client.create(a_job("a"))
    client.create(a_job("b"))
    stream = client.reflect(JOB)
    assert told(list(islice(stream, 3))) == [("Added", "a"), ("Added", "b"), ("Synced", "")]
    client.suspend("default", "a")
    client.delete(JOB, "default", "b")
    client.create(a_job("b"))
    # a change between the list and the watch may be asked for twice, never missed
    assert told(list(islice(stream, 3))) == [("Modified", "a"), ("Deleted", "b"), ("Added", "b")]
    stream.close()


@pytest.mark.slow
def test_reflect_finds_out_what_it_has_missed(small: LiveServer) -> None:
    client = small.client()
    for name in ("gone", "changed", "replaced", "same"):
        client.create(a_job(name))
    changes, thread = reader(client)
    eventually(lambda: ("Synced", "") in told(changes))
    small.stop()
    changes.clear()
    store = small.store
    store.delete(JOB, "default", "gone", actor=SYSTEM)
    store.delete(JOB, "default", "replaced", actor=SYSTEM)
    store.create(a_job("replaced"), actor=SYSTEM)
    job = store.get(Job, "default", "changed", actor=SYSTEM)
    suspended = msgspec.structs.replace(job.spec, suspend=True)
    store.update(msgspec.structs.replace(job, spec=suspended), actor=SYSTEM)
    for number in range(100):
        store.create(a_job(f"new-{number:02}"), actor=SYSTEM)
    small.start()
    eventually(lambda: ("Added", "new-99") in told(changes))
    assert [pair for pair in told(changes) if not pair[1].startswith("new")] == [
        ("Deleted", "gone"),
        ("Modified", "changed"),
        ("Deleted", "replaced"),
        ("Added", "replaced"),
    ]
    client.close()
    thread.join(20)
    assert not thread.is_alive()


def test_who_may_not_watch_is_told_at_once(server: LiveServer, client: Client) -> None:
    client.create(a_job())
    token = server.token_of("default", "train")
    url = f"unix://{server.home.tasks_socket}"
    with Client.connect(url=url, token=token) as task, pytest.raises(Forbidden):
        task.watch(JOB, version="x")
