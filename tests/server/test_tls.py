"""TLS of the TCP listener: whose certificate it is, and that clients pin it before they send a token."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar, cast

import pytest

from shoal.client import Client
from shoal.cluster.base import Session
from shoal.cluster.simulated import Script, SimulatedCluster, run_for
from shoal.elastic.coordinator import records as records_of
from shoal.elastic.coordinator.endpoint import EndpointRecords
from shoal.objects.account import RoleBinding
from shoal.objects.errors import Invalid, Unavailable
from shoal.objects.kinds import JOB
from shoal.objects.node import Capacity
from shoal.objects.task import TaskKey, TaskSpec
from shoal.server.listeners import is_loopback, server_tls
from shoal.store.base import SYSTEM
from shoal.testing.plane import Plane, capacity
from tests.server.harness import LiveServer, a_job


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    folder.mkdir()
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", tcp=True)
    yield live
    live.close()


def test_a_self_made_certificate_stays_the_same(keys: Path) -> None:
    first = server_tls(keys)
    assert server_tls(keys).fingerprint == first.fingerprint
    assert (keys / "tls.key").stat().st_mode & 0o777 == 0o600
    (keys / "tls.key").unlink()
    assert server_tls(keys).fingerprint != first.fingerprint


def test_a_given_certificate_is_used(keys: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    made = server_tls(other)
    given = server_tls(keys, str(other / "tls.crt"), str(other / "tls.key"))
    assert given.fingerprint == made.fingerprint
    assert list(keys.iterdir()) == []
    with pytest.raises(Invalid, match="go together"):
        server_tls(keys, str(other / "tls.crt"))
    server_tls(keys)
    with pytest.raises(Invalid, match="cannot be used"):
        server_tls(keys, str(other / "tls.crt"), str(keys / "tls.key"))


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        (":1", False),
    ],
)
def test_what_is_loopback(address: str, local: bool) -> None:
    assert is_loopback(address) is local


@pytest.mark.slow
def test_only_the_pinned_certificate_is_trusted(server: LiveServer) -> None:
    with server.client() as owner:
        owner.create_user("alice", [("viewer", "")])
        token = owner.create_token("alice").token
    pinned = server.trust["fingerprint"]
    colons = ":".join(pinned[at : at + 2] for at in range(0, 64, 2)).upper()
    for fingerprint in (pinned, colons, f"sha256:{pinned}"):
        with Client.connect(url=server.url, token=token, fingerprint=fingerprint) as alice:
            assert alice.list(JOB).records == ()
    with (
        Client.connect(url=server.url, token=token, fingerprint="0" * 64) as alice,
        pytest.raises(Unavailable, match="shows another certificate"),
    ):
        alice.list(JOB)
    with (
        Client.connect(url=server.url, token=token) as alice,
        pytest.raises(Unavailable, match="certificate"),
    ):
        alice.list(JOB)  # the system's authorities have not signed it
    with pytest.raises(Invalid, match="no SHA-256 fingerprint"):
        Client.connect(url=server.url, fingerprint="00")


def test_another_certificate_never_sees_the_token(keys: Path) -> None:
    tls = server_tls(keys)
    received: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        accepted.settimeout(20)
        with tls.context.wrap_socket(accepted, server_side=True) as stream:
            try:
                received.append(stream.recv(65536))
            except (ssl.SSLError, ConnectionError):
                received.append(b"")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with (
            Client.connect(url=url, token="secret", fingerprint="1" * 64) as client,
            pytest.raises(Unavailable, match="shows another certificate"),
        ):
            client.version()
        thread.join(30)
    assert received == [b""]


def test_a_task_finds_the_fingerprint_in_its_environment(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_API", server.url)
    monkeypatch.setenv("SHOAL_API_FINGERPRINT", server.trust["fingerprint"])
    monkeypatch.delenv("SHOAL_HOME", raising=False)
    with Client.connect() as client:
        assert client.readiness().ready
    monkeypatch.setenv("SHOAL_API_FINGERPRINT", "0" * 64)
    with Client.connect() as client, pytest.raises(Unavailable, match="shows another certificate"):
        client.readiness()


def test_the_elastic_library_reaches_the_platform_over_tls(server: LiveServer, tmp_path: Path) -> None:
    """As `SHOAL_API` of a task says: an https address with a pinned certificate."""
    server.store.create(a_job(runtime="elastic"), actor=SYSTEM)
    token = tmp_path / "token"
    token.write_text(server.token_of("default", "train"))
    environment = {
        "SHOAL_API": server.url,
        "SHOAL_API_FINGERPRINT": server.trust["fingerprint"],
        "SHOAL_TOKEN_FILE": str(token),
    }
    with closing(EndpointRecords.from_environment(environment)) as records:
        empty = records.load()
        assert records.load().data is None
        version = records.save(empty.version, b'{"view": 1}')
        assert records.load().version == version
    wrong = {**environment, "SHOAL_API_FINGERPRINT": "0" * 64}
    with (
        closing(EndpointRecords.from_environment(wrong)) as records,
        pytest.raises(records_of.Unavailable, match="another certificate"),
    ):
        records.load()


class _Echo:
    """A port of a task that gives back what it gets, then closes."""

    def __init__(self) -> None:
        self._pieces: SimpleQueue[bytes] = SimpleQueue()
        self._open = True

    def send(self, data: bytes) -> None:
        self._pieces.put(data)

    def receive(self) -> tuple[str, bytes]:
        if not self._open:
            return "exit", b"0"
        data = self._pieces.get(timeout=20)
        self._open = bool(data)
        return ("out", data) if data else ("exit", b"0")

    def resize(self, rows: int, columns: int) -> None:
        raise AssertionError("a port has no terminal")

    def close(self) -> None:
        self._pieces.put(b"")


class _Listening(SimulatedCluster):
    """Its tasks listen: what is forwarded comes back."""

    ports: ClassVar[list[int]] = []

    def forward(self, task: TaskKey, port: int) -> Session:
        self.ports.append(port)
        return cast("Session", _Echo())


class _ListeningPlane(Plane):
    def make_cluster(
        self, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script]
    ) -> SimulatedCluster:
        return _Listening(self.clock, nodes, behave)


@pytest.mark.slow
def test_a_port_is_forwarded_over_tls(tmp_path: Path) -> None:
    plane = _ListeningPlane({"n0": capacity(4)}, run_for(None))
    plane.submit(a_job())
    plane.advance(2)
    live = LiveServer(
        tmp_path / "home", tcp=True, store=plane.store, cluster=plane.cluster, default_queue=False
    )
    with closing(live):
        live.services.control = plane.context
        live.accounts.create_user(
            "alice", (RoleBinding(role="user", namespace="default"),), actor=SYSTEM
        )
        _, token = live.accounts.create_token("alice", "", 0.0, actor=SYSTEM)
        with Client.connect(url=live.url, token=token, **live.trust) as client:
            session = client.forward("default", "train", 6006)
            received = b""
            for size in (1, 70_000, 300_000):
                session.send(b"x" * size)
            session.send(b"")
            while (piece := session.receive())[0] == "out":
                received += piece[1]
            session.close()
    assert (received, piece) == (b"x" * 370_001, ("exit", b"0"))
    assert _Listening.ports == [6006]
