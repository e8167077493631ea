from __future__ import annotations

import pytest

from shoal import __version__
from shoal.client import transport
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer


def test_without_a_server(sh: Shell) -> None:
    said = sh("version")
    assert said.code == 0
    assert said.lines[1].split()[:2] == ["client", __version__]
    assert "no server is running here" in said.err
    assert sh("version", "--json").document["server"] is None


def test_both(sh: Shell, server: LiveServer) -> None:
    said = sh("version", "-o", "json")
    assert said.document["client"]["version"] == said.document["server"]["version"] == __version__
    assert sh("version").lines[2].split()[:2] == ["server", __version__]


@pytest.mark.slow
def test_a_server_of_another_version_is_named_with_the_remedy(
    sh: Shell, server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "__version__", "99.0.0")
    told = sh("version")
    assert told.code == 0
    assert f"is of version {__version__}, this client of version 99.0.0" in told.err
    assert "shoal down && shoal up" in told.err
    refused = sh("get", "jobs", "-o", "json")
    assert (refused.code, refused.document["code"]) == (6, "VersionSkew")
