from __future__ import annotations

import time

import msgspec
import pytest

from shoal.client import Client
from shoal.objects.errors import Expired
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.server import serving
from shoal.server.routers import objects
from shoal.server.services import SharedDocuments
from shoal.store.base import SYSTEM, Event, Watch
from shoal.store.memory import MemoryStore, Window
from tests.server.harness import LiveServer, a_job, eventually
from tests.server.raw import Raw

WATCH = "/api/v1/jobs?watch=true"


def take(watch: Watch, count: int) -> list[Event]:
    events: list[Event] = []
    deadline = time.monotonic() + 20
    while len(events) < count and time.monotonic() < deadline:
        events += watch.wait(1.0)
    return events


def large(name: str) -> Job:
    metadata = Metadata(name=name, annotations={"large": "x" * 200_000})
    return msgspec.structs.replace(a_job(), metadata=metadata)


def test_a_watch_of_one_object_begins_with_what_is_there(client: Client) -> None:
    client.create(a_job("other"))
    made = client.create(a_job())
    watch = client.watch_object(JOB, "default", "train")
    first, mark = take(watch, 2)
    assert (first.type, mark.type) == ("Added", "Bookmark")
    assert first.record is not None
    assert first.record.object == made
    client.suspend("default", "other")
    client.suspend("default", "train")
    (changed,) = take(watch, 1)
    assert changed.record is not None
    assert changed.record.object.metadata.name == "train"
    client.delete(JOB, "default", "train")
    assert take(watch, 1)[0].type == "Deleted"
    watch.close()


def test_a_watch_of_what_is_not_there_yet_says_when_it_is(client: Client) -> None:
    watch = client.watch_object(JOB, "default", "train")
    assert [event.type for event in take(watch, 1)] == ["Bookmark"]
    client.create(a_job())
    assert [event.type for event in take(watch, 1)] == ["Added"]
    watch.close()


def test_the_stream_is_server_sent_events(server: LiveServer, client: Client) -> None:
    made = client.create(a_job())
    with Raw(server.home.api_socket) as raw:
        raw.send(f"GET {WATCH} HTTP/1.1")
        text = raw.until(b"Bookmark")
    head, _, rest = text.partition(b"\r\n\r\n")
    assert b"text/event-stream" in head
    assert b"id: " + made.metadata.resource_version.encode() + b"\nevent: Added\ndata: {" in rest


@pytest.mark.slow
def test_a_quiet_watch_shows_that_it_lives(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_KEEP_ALIVE_SECONDS", 0.02)
    with Raw(server.home.api_socket) as raw:
        raw.send(f"GET {WATCH} HTTP/1.1")
        for _ in range(3):
            raw.until(b": still here\n\n")


def test_a_version_that_is_gone_is_said_before_the_stream_begins(client: Client) -> None:
    with pytest.raises(Expired):
        client.watch(JOB, version="long-ago")


def test_last_event_id_goes_before_the_query(server: LiveServer, client: Client) -> None:
    first = client.create(a_job("first")).metadata.resource_version
    second = client.create(a_job("second")).metadata.resource_version
    client.create(a_job("third"))
    with Raw(server.home.api_socket) as raw:
        raw.send(f"GET {WATCH}&resourceVersion={first} HTTP/1.1\nLast-Event-ID: {second}")
        text = raw.until(b'"third"')
    assert b'"second"' not in text


@pytest.mark.slow
def test_who_does_not_read_is_sent_away_and_hurts_nobody(
    server: LiveServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_UNREAD_SECONDS", 0.1)
    version = client.list(JOB).version
    watch = client.watch(JOB, version=version)
    with Raw(server.home.api_socket) as dead:
        dead.send(f"GET {WATCH} HTTP/1.1")
        for number in range(30):  # 6 MB: more than any socket holds
            server.store.create(large(f"job-{number}"), actor=SYSTEM)
        assert len(take(watch, 30)) == 30
        eventually(lambda: server.serving.connections == 2)
        assert b"event: Added" in dead.until_closed()
    watch.close()


@pytest.mark.slow
def test_a_reader_that_is_too_slow_is_told_and_can_list_again(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(window=Window(count=10))
    live = LiveServer(tmp_path / "home", store=store)  # type: ignore[operator]
    with Raw(live.home.api_socket) as slow:
        slow.send(f"GET {WATCH} HTTP/1.1")
        slow.until(b"Bookmark")
        for number in range(60):
            store.create(large(f"job-{number}"), actor=SYSTEM)
        text = slow.until(b'"code":"Expired"')
        assert text.count(b"event: Added") < 60
    live.close()


def test_watches_end_with_their_clients(server: LiveServer, client: Client) -> None:
    version = client.list(JOB).version
    watches = [client.watch(JOB, version=version) for _ in range(5)]
    feed = server.store._backend._watch_cache  # type: ignore[attr-defined]
    assert len(feed._watches) == 5
    for watch in watches:
        watch.close()
    eventually(lambda: not feed._watches)


def test_watches_that_are_being_filled_share_their_documents() -> None:
    """A hundred of them, each with two thousand jobs of its own, took 400 MB."""
    shared = SharedDocuments()
    with shared:
        first = shared.shared("Job", [b"a" * 100, b"b" * 100])
        second = shared.shared("Job", [bytes(bytearray(b"a" * 100)), b"c" * 100])
        assert second == [b"a" * 100, b"c" * 100]
        assert second[0] is first[0]
    with shared:
        again = bytes(bytearray(b"a" * 100))
        assert shared.shared("Job", [again])[0] is again, "nothing is kept once all are filled"
