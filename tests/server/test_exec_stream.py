"""The exec route against what no client should send; commands beside real tasks are in test_running."""

from __future__ import annotations

import asyncio
import getpass
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from shoal.client import Client
from shoal.client.wire import FRAMES, frame
from shoal.cluster.simulated import run_for
from shoal.objects.errors import Invalid, NotFound, Unavailable
from shoal.server import serving
from shoal.server.routers import running
from shoal.server.routers.running import ExecAnswer
from shoal.testing.plane import Plane, capacity
from tests.server.harness import LiveServer, a_job, eventually
from tests.server.raw import Raw

PATH = "/api/v1/namespaces/default/jobs/train/exec"


def command(**asked: object) -> bytes:
    return frame(b"C", msgspec.json.encode({"command": ["true"], **asked}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        frame(b"I", b"input first"),
        frame(b"C", b"no json"),
        frame(b"C", b'{"command": "one string"}'),
        command()[:-1],
        b"C\x7f\xff\xff\xff" + b"x" * 100,
    ],
)
def test_the_body_begins_with_a_command(client: Client, body: bytes) -> None:
    client.create(a_job())
    with pytest.raises(Invalid, match="begin with a command"):
        client.transport.request("POST", PATH, body=body, headers={"Content-Type": FRAMES})


def test_a_command_has_words(client: Client) -> None:
    with pytest.raises(Invalid, match="no command to run"):
        client.transport.request("POST", PATH, body=command(command=[]))


def test_the_job_is_looked_for_first(client: Client) -> None:
    with pytest.raises(NotFound, match="train"):
        client.transport.request("POST", PATH, body=command())


def test_before_the_nodes_are_known_nothing_runs_beside_them(client: Client) -> None:
    client.create(a_job())
    with pytest.raises(Unavailable, match="still starting"):
        client.transport.request("POST", PATH, body=command())


class Closing:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_one_job_cannot_take_everybodys_places(server: LiveServer, monkeypatch: object) -> None:
    first, second = Closing(), Closing()
    monkeypatch.setitem(ExecAnswer._open, "greedy", 10_000)  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match="too many"):
        ExecAnswer(first, bytearray(), "greedy")  # type: ignore[arg-type]
    assert first.closed
    monkeypatch.setitem(ExecAnswer._open, "greedy", 130)  # type: ignore[attr-defined]
    ExecAnswer(second, bytearray(), "modest")  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="too many"):
        ExecAnswer(first, bytearray(), "greedy")  # type: ignore[arg-type]


class Exiting(Closing):
    """A session whose command has ended with code 0."""

    def receive(self) -> tuple[str, bytes]:
        return "exit", b"0"


def test_a_job_is_no_longer_counted_once_its_commands_have_ended() -> None:
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    async def run() -> None:
        answer = ExecAnswer(Exiting(), bytearray(), "some-job")  # type: ignore[arg-type]
        await answer({"type": "http"}, receive, send)  # type: ignore[arg-type]

    asyncio.run(run())
    assert sent[-1]["more_body"] is False
    assert "some-job" not in ExecAnswer._open  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_command_beside_a_task_leaves_an_audit_event(tmp_path: Path) -> None:
    plane = Plane({"n0": capacity(4)}, run_for(None))
    plane.submit(a_job())
    plane.until(lambda: plane.job("train").status.phase == "Running")
    plane.cluster.exec = lambda *_, **__: Exiting()  # type: ignore[assignment, method-assign]
    server = LiveServer(tmp_path / "home", store=plane.store, cluster=plane.cluster)
    try:
        server.services.control = plane.context
        server.services.audit.attach(server.services.recorder)
        with server.client() as client:
            client.transport.request("POST", PATH, body=command(), headers={"Content-Type": FRAMES})
            eventually(lambda: bool(server.history.entries(types=("audit",))))
            (entry,) = server.history.entries(types=("audit",))
            assert (entry.reason, entry.data["actor"]) == ("exec", getpass.getuser())
    finally:
        server.close()


BODY_SECONDS = 4.0
"""How long a body may take here: long enough for its first frame on a busy machine."""


class Waiting:
    """A session that goes on until it is closed: it counts its input, or takes none of it."""

    def __init__(self) -> None:
        self.reads = True
        self.received = 0
        self.closed = threading.Event()

    def send(self, data: bytes) -> None:
        if not self.reads:
            self.closed.wait(60)
        self.received += len(data)

    def receive(self) -> tuple[str, bytes]:
        self.closed.wait(60)
        return "exit", b"255"

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LiveServer, Waiting]]:
    """A server with a running job, beside which every session is this one."""
    monkeypatch.setattr(running, "_KEEP_ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(serving, "_BODY_SECONDS", BODY_SECONDS)
    plane = Plane({"n0": capacity(4)}, run_for(None))
    plane.submit(a_job())
    plane.until(lambda: plane.job("train").status.phase == "Running")
    session = Waiting()
    plane.cluster.exec = lambda *_, **__: session  # type: ignore[assignment, method-assign]
    plane.cluster.forward = lambda *_: session  # type: ignore[assignment, method-assign]
    server = LiveServer(tmp_path / "home", store=plane.store, cluster=plane.cluster)
    try:
        server.services.control = plane.context
        server.services.audit.attach(server.services.recorder)
        yield server, session
    finally:
        session.close()
        server.close()


def begin(raw: Raw, route: str) -> None:
    """The head and the first frame; returns once the session goes on."""
    raw.send(f"POST {PATH.removesuffix('exec')}{route} HTTP/1.1\nTransfer-Encoding: chunked")
    chunk(raw, command(port="6006"))
    raw.until(frame(b"K"))


def chunk(raw: Raw, data: bytes) -> None:
    raw.socket.sendall(b"%x\r\n%s\r\n" % (len(data), data))


ROUTES = pytest.mark.parametrize("route", ["exec", "port-forward"])


@ROUTES
def test_a_bad_frame_ends_the_session(waiting: tuple[LiveServer, Waiting], route: str) -> None:
    server, session = waiting
    with Raw(server.home.api_socket) as raw:
        begin(raw, route)
        chunk(raw, b"I" + (200 * 2**20).to_bytes(4, "big"))
        assert b"the body is not made of frames" in raw.until(b"0\r\n\r\n")
    assert session.closed.wait(20)
    eventually(lambda: ExecAnswer._open.total() == 0)  # type: ignore[attr-defined]


@pytest.mark.slow
@ROUTES
def test_a_hang_up_ends_a_session_that_reads_no_input(
    waiting: tuple[LiveServer, Waiting], route: str
) -> None:
    server, session = waiting
    session.reads = False
    with Raw(server.home.api_socket) as raw:
        begin(raw, route)
        raw.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):  # what fits into the buffers of the connection
            while True:
                chunk(raw, frame(b"I", b"x" * 60_000))
        assert not session.closed.is_set()
    assert session.closed.wait(20)


@pytest.mark.slow
def test_a_stream_has_no_limit_of_size_or_time(waiting: tuple[LiveServer, Waiting]) -> None:
    server, session = waiting
    with Raw(server.home.api_socket) as raw:
        begin(raw, "port-forward")
        time.sleep(BODY_SECONDS)  # quiet for longer than a body may take since its head
        for _ in range(80):
            chunk(raw, frame(b"I", b"x" * 65_000))
        eventually(lambda: session.received == 80 * 65_000)
        assert not session.closed.is_set()
