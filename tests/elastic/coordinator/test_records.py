"""The cell that a record is kept in: in a file, and with a platform over a unix socket."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.elastic.coordinator.endpoint import EndpointRecords
from shoal.elastic.coordinator.record import Ended, Failure, Record, from_bytes, to_bytes
from shoal.elastic.coordinator.records import Refused, SqliteRecords, Unavailable
from shoal.elastic.view import Cursor, Member, View

from .clients import Process, Worker

FULL = Record(
    job="u",
    attempt=3,
    key="k",
    address="here:1",
    epoch=5,
    view=View(4, "loss", (Member("a", 1, "x:1"), Member("b", 2, "y:2")), 7, Cursor(1, 64)),
    planned=(View(5, "switch", (Member("a", 1, "x:1"),), 7, Cursor(1, 64)),),
    stateless=(2,),
    next_incarnation=9,
    minimum=2,
    maximum=8,
    target=4,
    step=7,
    cursor=Cursor(1, 64),
    manifest={"step": 6, "files": ["ä"]},
    failures=(Failure("a", 1, 0, ((0, 4), (9, 12)), "x"),),
    ended=Ended("because", failed=True),
)


def test_a_record_is_what_it_was() -> None:
    assert from_bytes(to_bytes(FULL)) == FULL
    assert from_bytes(to_bytes(Record())) == Record()


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b'{"format": 2}', b"\xff", b'{"format": 1}']
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        from_bytes(data)


def test_a_new_attempt_keeps_the_counts_alone() -> None:
    new = FULL.next_attempt("u", 4, "other")
    assert (new.epoch, new.next_incarnation, new.manifest, new.step) == (5, 9, FULL.manifest, 7)
    assert (new.view, new.planned, new.failures, new.ended, new.key) == (None, (), (), None, "other")


def test_capacity() -> None:
    assert Record().capacity is None
    assert replace(FULL, target=None).capacity == 8
    assert FULL.capacity == 4
    assert replace(FULL, target=1).capacity == 2


def test_a_file_is_written_by_compare_and_set(tmp_path: Path) -> None:
    first, second = (SqliteRecords(tmp_path / "deep" / "record.db") for _ in range(2))
    empty = first.load()
    assert (empty.version, empty.data) == ("", None)
    version = first.save(empty.version, b"one")
    with pytest.raises(Refused):
        second.save(empty.version, b"two")
    version = second.save(version, b"two")
    with pytest.raises(Refused):
        first.save("1", b"three")
    assert (first.load().version, first.load().data) == (version, b"two")
    first.close()
    second.close()


def test_reports_are_kept_but_not_all(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / "record.db")
    for number in range(1010):
        records.report({"number": number})
    assert [each["number"] for each in records.reports()] == list(range(10, 1010))
    records.close()


class Platform(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The three requests of the endpoint, over a real socket, with a cell in memory."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "api.sock")
        self.token = "secret"
        self.version, self.record = 0, None
        self.sizes: dict[str, Any] = {"target": 1, "minimum": 1, "maximum": 4}
        self.reports: list[dict[str, Any]] = []
        self.resizes: list[int] = []
        self.broken = 0
        """How many requests are answered with 503, the writes among them after they were kept."""
        super().__init__(self.path, Answer)


class Answer(http.server.BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Platform

    def _take(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        platform = self.server
        status, answer = self._answer(method, body)
        if platform.broken:
            platform.broken -= 1
            status, answer = 503, {}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _answer(self, method: str, body: Any) -> tuple[int, dict[str, Any]]:
        platform = self.server
        if self.headers.get("Authorization") != f"Bearer {platform.token}":
            return 401, {"title": "no such token"}
        match method, self.path:
            case "GET", "/api/v1/elastic":
                version = str(platform.version) if platform.record is not None else ""
                return 200, {"version": version, "record": platform.record, **platform.sizes}
            case "PUT", "/api/v1/elastic":
                known = str(platform.version) if platform.record is not None else ""
                if body["version"] != known:
                    return 409, {"title": "written since"}
                platform.version, platform.record = platform.version + 1, body["record"]
                return 200, {"version": str(platform.version)}
            case "POST", "/api/v1/elastic/report":
                platform.reports.append(body)
                return 200, {}
            case "POST", "/api/v1/elastic/resize":
                platform.resizes.append(body["replicas"])
                return 200, {}
            case _:
                return 404, {}

    def do_GET(self) -> None:
        self._take("GET")

    def do_PUT(self) -> None:
        self._take("PUT")

    def do_POST(self) -> None:
        self._take("POST")

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Nothing: the tests' output is for what they print."""


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with Platform(tmp_path) as server:
        (tmp_path / "token").write_text(server.token + "\n")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join(5.0)


def records_of(platform: Platform) -> EndpointRecords:
    return EndpointRecords(platform.path, Path(platform.path).parent / "token")


def test_the_platform_keeps_it(platform: Platform) -> None:
    records = records_of(platform)
    kept = records.load()
    assert (kept.version, kept.data, kept.target, kept.minimum, kept.maximum) == ("", None, 1, 1, 4)
    version = records.save("", b'{"a": 1}')
    assert records.load().data == b'{"a": 1}'
    with pytest.raises(Refused, match="409"):
        records.save("", b"{}")
    assert records.save(version, b"{}") == "2"
    records.report({"world": 2})
    records.grant(3)
    assert (platform.reports, platform.resizes) == ([{"world": 2}], [3])
    records.close()


def test_another_jobs_token_is_refused(platform: Platform) -> None:
    platform.token = "other"
    with pytest.raises(Refused, match="401"):
        records_of(platform).load()


def test_a_platform_that_is_away_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with pytest.raises(Unavailable, match=r"nothing\.sock"):
        EndpointRecords(str(tmp_path / "nothing.sock"), tmp_path / "token").load()


def test_its_variables_are_asked_for() -> None:
    with pytest.raises(ValueError, match="SHOAL_API and SHOAL_TOKEN_FILE"):
        EndpointRecords.from_environment({})


@pytest.mark.process
@pytest.mark.slow
def test_a_coordinator_on_the_platform(platform: Platform, tmp_path: Path) -> None:
    """It expects what the platform started, reports, asks for workers, and outlives lost answers."""
    platform.sizes = {"target": 2, "minimum": 1, "maximum": 4}
    env = {"SHOAL_API": platform.path, "SHOAL_TOKEN_FILE": str(tmp_path / "token")}
    process = Process(tmp_path, "--api", env=env)
    try:
        first = Worker(process, "worker-0").welcomed()
        platform.broken = 3
        second = Worker(process, "worker-1").welcomed()
        view = first.hear("view")["view"]
        assert [each["name"] for each in view["members"]] == ["worker-0", "worker-1"]
        for each in (first, second):
            each.recovered(1)
        report = {"step": 5, "cursor": [0, 5], "step_seconds": 0.1, "samples": 8, "world": 2}
        report |= {"epoch": 1, "broken": 0}
        first.say("resize", size=4)
        first.say("report", **report)
        second.say("report", **report)
        first.say("publish", epoch=1, manifest={"step": 4})
        first.hear("published")
        assert platform.record is not None
        record = from_bytes(platform.record.encode())
        assert (record.address, record.key, record.manifest) == (
            process.address,
            process.key,
            {"step": 4},
        )
        assert platform.resizes == [4]
        second.close()
        first.hear("view")
        first.recovered(2, 5)
        until = time.monotonic() + 10.0
        while not platform.reports[-1]["recoveries"]:
            assert time.monotonic() < until, platform.reports[-1]
            time.sleep(0.02)
        assert process.end() == 0
        newest = platform.reports[-1]
        print(newest)
        assert (newest["world"], newest["step"], newest["state"]) == (1, 5, "running")
        assert newest["recoveries"][0]["seconds"] == 0.01
        assert newest["worldOverTime"][-1][1] == 1
    finally:
        process.close()
