from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shoal.cli import contexts
from shoal.cli.main import shoal
from shoal.client import Client
from shoal.objects.kinds import JOB
from tests.server.harness import LiveServer


@dataclass
class Said:
    """What one command line left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Shell:
    """Runs command lines in this process, as somebody without a terminal would."""

    def __call__(self, *words: str, input: str | bytes | None = None) -> Said:  # noqa: A002
        result = CliRunner().invoke(shoal, words, input=input)
        return Said(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own Shoal is seen."""
    for name in ("SHOAL_API", "SHOAL_CONTEXT", "SHOAL_NAMESPACE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHOAL_CONFIG", str(tmp_path / "config.toml"))
    contexts.forget()


class SyncedShell(Shell):
    """Brings the server's caches of jobs and tasks up to date before each command line."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server

    def __call__(self, *words: str, input: str | bytes | None = None) -> Said:  # noqa: A002
        context = self._server.services.control
        if context is None:
            self._server.with_caches()
        else:
            context.cache(JOB).sync()
            context.tasks.sync()
        return super().__call__(*words, input=input)


@pytest.fixture
def sh() -> Shell:
    return Shell()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home")
    yield live
    live.close()


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with server.client() as connected:
        yield connected
