"""Servers that are reached by an address, through a context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cli import contexts
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer, a_job


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", tcp=True)
    yield live
    live.close()


@pytest.fixture
def token(server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A context `lab` for the server's TCP listener; nothing says where its home is."""
    monkeypatch.delenv("SHOAL_HOME")
    file = tmp_path / "token"
    with server.client() as client:
        client.create_user("me", [("admin", "")])
        file.write_text(client.create_token("me").token + "\n")
        client.create(a_job("train", namespace="team-a"))
    (tmp_path / "config.toml").write_text(
        f"[contexts.lab]\nurl = '{server.url}'\n"
        f"fingerprint = '{server.trust['fingerprint']}'\n"
        f"token-file = '{file}'\nnamespace = 'team-a'\n"
    )
    contexts.forget()
    return file


@pytest.mark.slow
def test_a_context_is_address_token_and_namespace(sh: Shell, token: Path) -> None:
    assert sh("--context", "lab", "get", "jobs", "-o", "name").out == "job/train\n"
    assert sh("get", "jobs", "--context", "lab", "-n", "default", "--json").document["items"] == []
    submitted = sh("--context", "lab", "run", "-d", "--name", "far", "--", "not-installed-here")
    assert (submitted.code, submitted.out) == (0, "job/far\n")
    assert "shoal --context lab logs -f job/far" in submitted.err


def test_a_wrong_token_is_not_allowed(sh: Shell, token: Path) -> None:
    token.write_text("wrong")
    said = sh("--context", "lab", "get", "jobs", "-o", "json")
    assert (said.code, said.document["code"]) == (5, "Unauthenticated")


def test_a_token_that_cannot_be_read(sh: Shell, token: Path) -> None:
    token.unlink()
    said = sh("--context", "lab", "get", "jobs")
    assert (said.code, "correct token-file in" in said.err) == (2, True)


def test_a_server_that_is_not_there(sh: Shell, token: Path, server: LiveServer) -> None:
    server.stop()
    said = sh("--context", "lab", "get", "jobs")
    assert said.code == 6
    assert f"https://127.0.0.1:{server.port}" in said.err
