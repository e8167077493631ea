"""The walk-through of docs/security.md: users with different roles on one server, over TLS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from tests.server.test_process import Process, free_port

pytestmark = [pytest.mark.process, pytest.mark.slow]

_SAID = ("SHOAL_HOME", "SHOAL_API", "SHOAL_CONTEXT", "SHOAL_NAMESPACE", "SHOAL_TOKEN_FILE")


@dataclass
class Person:
    """A user's shell, with its own configuration."""

    environment: dict[str, str]

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name not in _SAID}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "shoal.cli", *words],
            env={**kept, **self.environment},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    def document(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json").stdout)

    def names(self, *words: str) -> list[str]:
        return self(*words, "-o", "name").stdout.split()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "home", tmp_path / "log", "--listen", f"127.0.0.1:{free_port()}")
    yield process
    if process.process.poll() is None:
        process.process.kill()
        process.process.wait()


@pytest.fixture
def owner(server: Process, tmp_path: Path) -> Person:
    server.client().close()
    return Person({"SHOAL_HOME": str(server.home), "SHOAL_CONFIG": str(tmp_path / "owner.toml")})


def logged_in(name: str, owner: Person, server: Process, folder: Path) -> Person:
    """As the walk-through says: the owner makes a token, the user logs in with it."""
    file = folder / f"{name}.token"
    file.write_text(owner("token", "create", "--user", name).stdout)
    assert len(file.read_text().splitlines()) == 1
    said = json.loads((server.home / "server.json").read_text())
    person = Person({"SHOAL_CONFIG": str(folder / name / "config.toml")})
    url = f"https://{said['addresses'][0]}"
    person("login", url, "--fingerprint", said["fingerprint"], "--token-file", str(file))
    return person


@pytest.mark.timeout(400)
def test_users_see_and_change_what_their_roles_say(
    server: Process, owner: Person, tmp_path: Path
) -> None:
    owner("user", "create", "alice", "--role", "user", "-n", "team-a")
    owner("user", "grant", "alice", "viewer", "-n", "team-b")
    owner("user", "create", "bob", "--role", "viewer", "-n", "team-a")
    owner("user", "create", "carol", "--role", "admin", "--cluster")
    alice, bob, carol = (logged_in(n, owner, server, tmp_path) for n in ("alice", "bob", "carol"))
    found = alice.document("whoami")
    assert found["name"] == "alice"
    assert {b["namespace"]: b["role"] for b in found["bindings"]} == {
        "team-a": "user",
        "team-b": "viewer",
    }

    alice("run", "-d", "--name", "x", "-n", "team-a", "--", "true")
    carol("run", "-d", "--name", "y", "-n", "team-b", "--", "true")
    # a viewer reads its namespace and changes nothing; another namespace is closed
    assert bob.names("get", "jobs") == ["job/x"]
    refused = bob("cancel", "job/x", code=5)
    assert "bob may not update jobs in namespace team-a: that needs the role user" in refused.stderr
    assert "namespace team-b" in bob("get", "jobs", "-n", "team-b", code=5).stderr
    bob("user", "list", "-o", "json")
    bob("user", "grant", "bob", "user", "-n", "team-a", code=5)
    bob("token", "create", "--user", "alice", code=5)
    # one user with a role each in two namespaces
    assert alice.names("get", "jobs", "-n", "team-b") == ["job/y"]
    alice("run", "-d", "--name", "z", "-n", "team-b", "--", "true", code=5)
    alice("cancel", "job/y", "-n", "team-b", code=5)
    alice("cancel", "job/x", "-n", "team-a")
    queue = tmp_path / "queue.yaml"
    queue.write_text(
        "apiVersion: shoal.dev/v1alpha1\nkind: Queue\nmetadata: {name: research}\nspec: {}\n"
    )
    alice("apply", "-f", str(queue), code=5)
    carol("apply", "-y", "-f", str(queue))
    # an admin does all of it
    assert sorted(u["name"] for u in carol.document("user", "list")["items"]) == [
        "alice",
        "bob",
        "carol",
    ]
    assert set(carol.names("get", "jobs", "-A")) >= {"job/y"}

    # each write left one audit event; refused ones left none
    bob("audit", "job/x", code=5)
    events = carol.document("audit", "job/x", "-n", "team-a")["items"]
    by_alice = [e for e in events if e["data"]["actor"] == "alice"]
    assert {e["data"]["actor"] for e in events} & {"bob"} == set()
    created, cancelled = sorted(by_alice, key=lambda e: e["at"])[:2]
    assert (created["reason"], cancelled["reason"]) == ("create", "update")
    assert not created["data"].get("before")
    assert created["data"]["after"] == cancelled["data"]["before"]
    assert cancelled["data"]["before"] != cancelled["data"]["after"]
    events = carol.document("audit", "job/y", "-n", "team-b")["items"]
    assert {e["data"]["actor"] for e in events if e["reason"] == "create"} == {"carol"}

    # a taken role holds from the next request on
    owner("user", "revoke", "alice", "-n", "team-b")
    alice("get", "jobs", "-n", "team-b", code=5)
    assert server.stop() == 0


def test_plain_http_is_for_loopback_alone(tmp_path: Path) -> None:
    log, home, address = tmp_path / "log", tmp_path / "home", f"127.0.0.1:{free_port()}"
    refused = Process(home, log, "--listen", f"0.0.0.0:{free_port()}", "--insecure=yes")
    assert refused.ended() == 2
    assert "would carry tokens in plain text over the network" in log.read_text()
    assert "Traceback" not in log.read_text()
    for words, scheme in (
        (("--listen", address, "--insecure=yes"), "http"),
        ((), "http"),  # as an agent restarts it
        (("--listen", address), "https"),
    ):
        process = Process(home, log, *words)
        try:
            process.client().close()
            pin = json.loads((home / "server.json").read_text())["fingerprint"]
            assert bool(pin) is (scheme == "https")
            with Client.connect(url=f"{scheme}://{address}", fingerprint=pin) as client:
                assert client.transport.request("GET", "/healthz").body == b"ok\n"
        finally:
            assert process.stop() == 0
