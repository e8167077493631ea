"""`shoal login`, `logout` and `config`: contexts are made, chosen and removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cli import contexts
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer, eventually


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", tcp=True)
    with live.client() as owner:
        owner.create_user("alice", [("user", "team-a")])
    monkeypatch.delenv("SHOAL_HOME")
    yield live
    live.close()


def new_token(server: LiveServer, lifetime_seconds: float = 0.0) -> tuple[str, str]:
    with server.client() as owner:
        made = owner.create_token("alice", lifetime_seconds=lifetime_seconds)
    return made.id, made.token


def test_login_makes_the_current_context_and_logout_removes_it(
    sh: Shell, server: LiveServer, tmp_path: Path
) -> None:
    _, token = new_token(server)
    pin = server.trust["fingerprint"]
    said = sh("login", server.url, "--fingerprint", pin, "--name", "lab", input=token + "\n")
    assert (said.code, "as alice" in said.err) == (0, True), said.err
    stored = tmp_path / "lab.token"
    assert stored.read_text().strip() == token
    assert stored.stat().st_mode & 0o777 == 0o600
    assert contexts.everything()[1]["lab"].fingerprint == pin
    found = sh("whoami", "-o", "json").document
    assert (found["name"], found["context"]) == ("alice", "lab")
    assert found["bindings"] == [{"namespace": "team-a", "role": "user"}]
    shown = sh("config", "view", "--show-origin", "-o", "json").document
    assert shown["namespace"] == {"value": "team-a", "origin": "context"}
    assert sh("logout").code == 0
    assert not stored.exists()
    assert contexts.everything() == ("", {})


def test_login_without_a_fingerprint_asks_before_it_sends_the_token(
    sh: Shell, server: LiveServer
) -> None:
    _, token = new_token(server)
    asked = sh("login", server.url, input=token + "\n")
    assert asked.code == 2
    assert server.trust["fingerprint"] in asked.err
    assert contexts.everything() == ("", {})
    trusted = sh("login", server.url, "-y", input=token + "\n")
    assert trusted.code == 0, trusted.err
    assert contexts.everything()[0] == "127-0-0-1"


def test_login_refuses_what_is_not_safe(sh: Shell, server: LiveServer) -> None:
    _, token = new_token(server)
    wrong = sh("login", server.url, "--fingerprint", "0" * 64, input=token + "\n")
    assert (wrong.code, "shows another certificate" in wrong.err) == (6, True), wrong.err
    plain = sh("login", "http://shoal.example.org:7450", input=token + "\n")
    assert (plain.code, "is not reached over TLS" in plain.err) == (2, True), plain.err
    assert contexts.everything() == ("", {})


def test_contexts_are_chosen_and_kept(sh: Shell, server: LiveServer, tmp_path: Path) -> None:
    assert sh("config", "set-context", "far", "--url", "https://far.example.org", "-n", "x").code == 0
    assert sh("config", "set-context", "near", "--home-folder", str(tmp_path / "near")).code == 0
    assert sh("config", "use-context", "far").code == 0
    listed = sh("config", "get-contexts", "-o", "json").document["items"]
    assert [(each["name"], each["current"]) for each in listed] == [("far", True), ("near", False)]
    assert sh("config", "use-context", "none").code == 3
    assert sh("config", "delete-context", "far").code == 0
    assert contexts.everything()[0] == ""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["expired", "revoked"])
def test_a_token_that_has_ended_is_one_clear_sentence(sh: Shell, server: LiveServer, how: str) -> None:
    _, token = new_token(server)
    login = ("login", server.url, "--fingerprint", server.trust["fingerprint"], "--name", "lab")
    assert sh(*login, input=token + "\n").code == 0
    identity, ended = new_token(server, lifetime_seconds=0.001 if how == "expired" else 0.0)
    Path(contexts.everything()[1]["lab"].token_file).write_text(ended)
    if how == "revoked":
        assert sh("get", "jobs").code == 0
        with server.client() as owner:
            owner.revoke_token(identity)
    else:
        eventually(lambda: sh("get", "jobs").code != 0)
    said = sh("get", "jobs")
    words = {"expired": "the token has expired", "revoked": "the token is not valid"}[how]
    assert said.code == 5
    assert words in said.err.splitlines()[0]
    assert len(said.err.splitlines()) <= 2, said.err  # the sentence and its hint
