"""`shoal user` and `shoal token`: accounts are made, listed and ended, and what has ended is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.objects.errors import Unauthenticated
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", tcp=True)  # the home of `sh`, used as its owner
    yield live
    live.close()


def _token(sh: Shell, user: str) -> tuple[str, str]:
    made = sh("token", "create", "--user", user, "--description", "laptop", "-o", "json").document
    return made["id"], made["token"]


def _name(server: LiveServer, token: str) -> str:
    pin = server.trust["fingerprint"]
    with Client.connect(url=server.url, token=token, fingerprint=pin) as client:
        return client.whoami().name


def test_a_revoked_token_is_refused_from_the_next_request_on(sh: Shell, server: LiveServer) -> None:
    assert sh("user", "create", "alice", "--role", "user", "-n", "team-a").code == 0
    (first, lost), (second, kept) = _token(sh, "alice"), _token(sh, "alice")
    listed = sh("token", "list")
    assert {line.split()[0] for line in listed.lines[1:]} == {first, second}
    assert "laptop" in listed.out and lost not in listed.out
    said = sh("token", "revoke", first)
    assert (said.code, said.err) == (0, f"token {first} is revoked\n")
    with pytest.raises(Unauthenticated):
        _name(server, lost)
    assert _name(server, kept) == "alice"
    assert sh("token", "revoke", first).code == 3
    assert [each["id"] for each in sh("token", "list", "-o", "json").document["items"]] == [second]


def test_a_deleted_user_goes_with_its_tokens(sh: Shell, server: LiveServer) -> None:
    assert sh("user", "create", "bob", "--role", "viewer", "-n", "team-a").code == 0
    _, token = _token(sh, "bob")
    assert _name(server, token) == "bob"
    assert sh("user", "delete", "bob").code == 2, "it asks first, and there is no terminal to ask at"
    said = sh("user", "delete", "bob", "-y")
    assert (said.code, said.err) == (0, "user bob is deleted\n")
    with pytest.raises(Unauthenticated):
        _name(server, token)
    assert sh("token", "list", "-o", "json").document["items"] == []
    assert "bob" not in sh("user", "list").out
    assert sh("user", "delete", "bob", "-y").code == 3
