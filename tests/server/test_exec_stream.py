"""The exec route against what no client should send; commands beside real tasks are in test_running."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path

import msgspec
import pytest

from shoal.client import Client
from shoal.client.wire import FRAMES, frame
from shoal.cluster.simulated import run_for
from shoal.objects.errors import Invalid, NotFound, Unavailable
from shoal.server.routers.running import ExecAnswer
from shoal.testing.plane import Plane, capacity
from tests.server.harness import LiveServer, a_job, eventually

PATH = "/api/v1/namespaces/default/jobs/train/exec"


def command(**asked: object) -> bytes:
    return frame(b"C", msgspec.json.encode({"command": ["true"], **asked}))


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
