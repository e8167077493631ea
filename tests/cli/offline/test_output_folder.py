"""`shoal output`: where a job's output folder is, and a copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from tests.cli.conftest import Shell, SyncedShell
from tests.cli.world import a_cluster
from tests.server.harness import LiveServer, a_job


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", cluster=a_cluster())
    yield live
    live.close()


@pytest.fixture
def folder(server: LiveServer, client: Client) -> Path:
    job = client.create(a_job("train"))
    folder = server.home.output / "default" / job.metadata.uid
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"weights")
    return folder


def test_where_it_is(server: LiveServer, folder: Path) -> None:
    sh = SyncedShell(server)
    assert sh("output", "train").out == f"{folder}\n"
    assert sh("output", "train", "-o", "json").document == {"path": str(folder), "copy": None}
    assert ["output:", str(folder)] in [line.split() for line in sh("describe", "job/train").lines]
    assert sh("describe", "job/train", "-o", "json").document["output"] == str(folder)


def test_a_copy(sh: Shell, folder: Path, tmp_path: Path) -> None:
    assert sh("output", "train", "--copy", str(tmp_path / "mine")).code == 0
    assert (tmp_path / "mine" / "model.pt").read_bytes() == b"weights"
    again = sh("output", "train", "--copy", str(tmp_path / "mine"))
    assert (again.code, "is not an empty folder" in again.err) == (4, True)


def test_what_there_is_not(
    sh: Shell, folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(a_job("new"))
    assert (sh("output", "new").code, sh("output", "nope").code) == (3, 3)
