from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.cluster.simulated import SimulatedCluster
from tests.cli.conftest import Shell, SyncedShell
from tests.cli.world import a_cluster, start_task
from tests.server.harness import LiveServer, a_job

pytestmark = pytest.mark.slow  # it measures over some time


@pytest.fixture
def cluster() -> SimulatedCluster:
    return a_cluster()


@pytest.fixture
def server(tmp_path: Path, cluster: SimulatedCluster) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", cluster=cluster)
    yield live
    live.close()


@pytest.fixture(autouse=True)
def running(client: Client, cluster: SimulatedCluster) -> None:
    job = client.create(a_job("train"))
    start_task(cluster, job, 0, "n1")
    start_task(cluster, job, 1, "n2")


@pytest.fixture
def sh(server: LiveServer) -> Shell:
    return SyncedShell(server)


def test_jobs(sh: Shell) -> None:
    said = sh("top", "--over", "100ms")
    assert said.code == 0, said.err
    assert said.lines[1].split()[:2] == ["train", "2"]
    (item,) = sh("top", "jobs", "--over", "100ms", "--json").document["items"]
    assert item["cpuCores"] == pytest.approx(2.0, rel=0.5)  # each simulated task uses what it asks for
    assert sh("top", "-n", "empty", "--over", "100ms").err == "no job has running tasks\n"
    assert sh("top", "-A", "--over", "100ms").lines[1].split()[:2] == ["default", "train"]


def test_nodes(sh: Shell, cluster: SimulatedCluster) -> None:
    said = sh("top", "nodes", "--over", "100ms")
    assert [line.split()[:3] for line in said.lines[1:]] == [["n1", "Ready", "1"], ["n2", "Ready", "1"]]
    assert "1/4" in said.out
    cluster.silence("n2")
    said = sh("top", "nodes", "--over", "100ms")
    assert "1 node did not answer: n2" in said.err


def test_queues(sh: Shell) -> None:
    (item,) = sh("top", "queues", "--over", "100ms", "-o", "json").document["items"]
    assert item["queue"] == "default"
    assert item["cpuCores"] > 0
    assert sh("top", "queues", "--over", "100ms", "-o", "name").out == "queue/default\n"
