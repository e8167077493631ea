"""TLS of the TCP listener: whose certificate it is, and that clients pin it before they send a token."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.objects.errors import Invalid, Unavailable
from shoal.objects.kinds import JOB
from shoal.server.listeners import is_loopback, server_tls
from tests.server.harness import LiveServer


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
