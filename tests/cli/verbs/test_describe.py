from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.cluster.simulated import SimulatedCluster
from shoal.objects.job import ElasticStatus, Recovery, Role, RoleStatus, WorldSize
from shoal.objects.meta import Condition, Metadata
from shoal.objects.node import Node
from shoal.objects.quantities import CpuMillis
from shoal.objects.queue import Queue, QueueSpec, Quota
from tests.cli.conftest import Shell
from tests.cli.world import a_cluster, event, start_task, status
from tests.server.harness import LiveServer, a_job


@pytest.fixture
def cluster() -> SimulatedCluster:
    return a_cluster()


@pytest.fixture
def server(tmp_path: Path, cluster: SimulatedCluster) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", cluster=cluster)
    yield live
    live.close()


def test_a_job(sh: Shell, server: LiveServer, client: Client, cluster: SimulatedCluster) -> None:
    job = client.create(a_job("train"))
    start_task(cluster, job, 0, "n1")
    condition = Condition(type="Restarting", status="False", reason="Backoff", changed=5.0)
    status(
        server, job, phase="Running", started=10.0, attempt=1, conditions=[condition],
        roles=[RoleStatus(name="worker", running=1, nodes="0=n1")],
    )  # fmt: skip
    event(server, job, "e1", "Started", "attempt 1 started\x1b[2J")
    said = sh("describe", "job/train")
    assert said.code == 0, said.err
    shown = [" ".join(line.split()) for line in said.lines]
    assert shown[0] == "job/train"
    for line in (
        "phase: Running",
        "queue: default, priority 0",
        "role worker: 1 x cpu 1",
        "Conditions",
        "Tasks",
        "Events",
    ):
        assert line in shown
    assert any(line.startswith("worker 0 Running n1 1 -") for line in shown)
    assert any("Normal Started attempt 1 started" in line for line in shown)
    assert "\x1b" not in said.out


def test_its_document(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    event(server, job, "e1", "Created", "it was created")
    document = sh("describe", "job/train", "-o", "json").document
    assert document["object"]["metadata"]["uid"] == job.metadata.uid
    assert document["tasks"] == [{"role": "worker", "index": 0, "phase": "Waiting", "incarnation": 1}]
    assert document["events"][0]["reason"] == "Created"
    assert sh("describe", "job/train", "-o", "name").out == "job/train\n"
    assert "phase: Waiting" in sh("describe", "job/train", "-o", "yaml").out


def test_many_tasks_are_cut_and_that_is_said(sh: Shell, client: Client) -> None:
    from shoal.objects.job import ArraySpec

    client.create(a_job("many", array=ArraySpec(indices="0-99")))
    said = sh("describe", "job/many")
    assert "showing 30 of 100 tasks" in said.err
    assert len(sh("describe", "job/many", "--json").document["tasks"]) == 100


def test_a_queue_and_a_node(sh: Shell, client: Client, cluster: SimulatedCluster) -> None:
    client.create(
        Queue(metadata=Metadata(name="q", namespace=""), spec=QueueSpec(quota=Quota(cpu=CpuMillis(500))))
    )
    shown = sh("describe", "queue/q").out.split()
    assert shown[shown.index("spec.quota.cpu:") + 1] == "500m"
    assert shown[shown.index("cpu:") + 1] == "0/500m"
    client.create(Node(metadata=Metadata(name="n1", namespace="", labels={"a": "b"})))
    start_task(cluster, client.create(a_job("train")), 0, "n1")
    said = sh("describe", "node", "n1")
    assert "labels:" in said.out
    assert any(line.split()[:4] == ["default/train", "worker", "0", "Running"] for line in said.lines)


@pytest.mark.parametrize("words", [["jobs"], ["job/a", "job/b"], ["job/nope"], ["nope"]])
def test_what_cannot_be_described(sh: Shell, server: LiveServer, words: list[str]) -> None:
    said = sh("describe", *words)
    assert said.code in (2, 3)
    assert said.out == ""


def test_an_elastic_job(sh: Shell, server: LiveServer, client: Client) -> None:
    role = Role(command=("python", "train.py"), replicas=4, min_replicas=1)
    job = client.create(a_job("train", roles=(role,), runtime="elastic"))
    recovery = Recovery(at=time.time() - 5, epoch=3, how="rerun", seconds=0.12, world=2)
    said = ElasticStatus(
        attempt=1, state="running", world=2, step=40, goodput=0.98, step_seconds=0.02, recoveries=1,
        recovery_seconds=0.12, last_recoveries=(recovery,),
        sizes=(WorldSize(at=time.time() - 9, size=3), WorldSize(at=time.time() - 5, size=2)),
    )  # fmt: skip
    status(server, job, writer="elastic", elastic=said)
    shown = [" ".join(line.split()) for line in sh("describe", "job/train").lines]
    for line in ("members: 2 of 1 to 4, running", "goodput: 98.0%", "Recoveries"):
        assert line in shown
    assert any("role coordinator: 1 x cpu 0.1" in line for line in shown), "nothing is hidden"
    assert any(line.endswith("3 rerun 0.120s 2 0") for line in shown)
    document = sh("describe", "job/train", "-o", "json").document
    assert document["object"]["status"]["elastic"]["world"] == 2
    assert [task["role"] for task in document["tasks"]].count("coordinator") == 1
