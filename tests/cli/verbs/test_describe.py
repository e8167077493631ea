from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from shoal.cluster.simulated import SimulatedCluster
from shoal.objects import codec
from shoal.objects.job import (
    ElasticStatus,
    Limits,
    NodeTime,
    Recovery,
    Resources,
    Role,
    RoleStatus,
    RoleTopology,
    Speed,
    Topology,
    WorldSize,
)
from shoal.objects.kinds import QUEUE
from shoal.objects.meta import Condition, Metadata
from shoal.objects.node import Node
from shoal.objects.quantities import CpuMillis, Seconds
from shoal.objects.queue import Amounts, Queue, QueueBudget, QueueSpec, QueueUsage, Quota
from shoal.store.base import SYSTEM
from tests.cli.conftest import Shell, SyncedShell
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


@pytest.fixture
def sh(server: LiveServer) -> Shell:
    return SyncedShell(server)


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


@pytest.mark.slow
def test_what_a_job_says_of_its_place_and_speed(sh: Shell, server: LiveServer, client: Client) -> None:
    near = RoleTopology(required="node", preferred="node")
    role = Role(command=("a",), resources=Resources(gpu_share=0.25), topology=near)
    job = client.create(
        a_job(
            roles=(role,),
            user="ann",
            preemptible=False,
            topology=Topology(preferred="node", spread="node"),
            limits=Limits(node_hours=2.5),
            speed=Speed(curve=(1.0, 1.8, 2.4), work=1e6, application="bert", restart=Seconds(20)),
        )
    )
    time_on_nodes = NodeTime(node_seconds=1800, nodes=1, since=time.time() - 1800)
    status(server, job, phase="Running", nodeTime=time_on_nodes)
    shown = [" ".join(line.split()) for line in sh("describe", "job/train").lines]
    for line in (
        "user: ann",
        "preemptible: no",
        "topology: preferred node, spread node",
        "speed: 1 to 2.4 a second with 1 to 3 tasks, 1e+06 in all, like bert, a change costs 20s",
        "role worker: 1 x cpu 1, gpu 0.25, required node, preferred node",
        "node hours: 1.00 of 2.5, on 1 node now",
    ):
        assert line in shown, (line, shown)


@pytest.mark.slow
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
    shown = [line.split() for line in sh("describe", "queue/q").lines]
    assert ["cpu", "0", "0", "0", "0", "-", "-", "0.5"] in shown
    client.create(Node(metadata=Metadata(name="n1", namespace="", labels={"a": "b"})))
    start_task(cluster, client.create(a_job("train")), 0, "n1")
    said = sh("describe", "node", "n1")
    assert "labels:" in said.out
    assert any(line.split()[:4] == ["default/train", "worker", "0", "Running"] for line in said.lines)


def a_tree(server: LiveServer, client: Client) -> None:
    """Research owns 4 GPUs, of which vision (weight 2) has 3 and uses 5."""
    specs = {
        "research": QueueSpec(nominal=Amounts(gpu=4.0, cpu=CpuMillis(8000)), quota=Quota(gpu=8)),
        "vision": QueueSpec(
            parent="research",
            weight=2,
            priority=3,
            fenced=True,
            nominal=Amounts(gpu=3.0),
            guaranteed=Amounts(gpu=0.5),
            borrowing=Amounts(gpu=2.0),
            lending=Amounts(gpu=1.0),
            quota=Quota(jobs=4),
            user_limit=Quota(gpu=2, jobs=1),
            min_runtime=Seconds(600),
            namespaces=("a", "b"),
            highest_priority={"*": "normal"},
            budgets=(QueueBudget(name="grant", resource="gpu", hours=100.0),),
        ),
        "speech": QueueSpec(parent="research"),
    }
    for name, spec in specs.items():
        client.create(Queue(metadata=Metadata(name=name, namespace=""), spec=spec))
    status_of(server, "vision", running=2, pending=1, usage=QueueUsage(gpu=5.5), spent={"grant": 12.345})
    status_of(server, "speech", running=1, usage=QueueUsage(cpu=CpuMillis(500), gpu=0.5))


def status_of(server: LiveServer, name: str, **fields: Any) -> None:
    queue = server.store.get(Queue, "", name, actor=SYSTEM)
    server.store.patch_status(
        QUEUE,
        *queue.key,
        actor=SYSTEM,
        writer="queue",
        uid=queue.metadata.uid,
        counter=queue.status.writers.get("queue", 0),
        fields=codec.builtins(fields),
    )


def test_a_queue_in_its_tree(sh: Shell, server: LiveServer, client: Client) -> None:
    a_tree(server, client)
    shown = [" ".join(line.split()) for line in sh("describe", "queue/vision").lines]
    for line in (
        "path: research > vision",
        "jobs: 2 running, 1 pending, 4 jobs at most",
        "weight: 2 of 3, with its siblings",
        "priority: 3 among its siblings",
        "fenced: jobs in it take nothing back from outside",
        "min runtime: 10m before others may take from a job",
        "each user: gpu 2, 1 job at most",
        "namespaces: a, b",
        "highest priority: * normal",
        "RESOURCE USED GUARANTEED OWN BORROWED BORROWS LENDS QUOTA",
        "gpu 5.5 0.5 3 2.5 2 1 -",
        "grant gpu 100 12.35 87.66",
    ):
        assert line in shown, line
    assert "Queues below" not in shown
    above = [" ".join(line.split()) for line in sh("describe", "queue/research").lines]
    assert "jobs: 3 running, 1 pending" in above
    assert "gpu 6 0.5 4 2 - - 8" in above
    assert "cpu 0.5 0 8 0 - - -" in above
    at = above.index("Queues below")
    assert [line.split()[0] for line in above[at + 2 : at + 4]] == ["speech", "vision"]


def test_a_queues_document(sh: Shell, server: LiveServer, client: Client) -> None:
    a_tree(server, client)
    document = sh("describe", "queue/research", "-o", "json").document
    assert document["below"] == ["speech", "vision"]
    assert document["object"]["spec"]["nominal"] == {"cpu": "8", "gpu": 4.0}
    assert document["summary"] == {
        "path": ["research"],
        "pending": 1,
        "running": 3,
        "used": {"cpu": 500.0, "memory": 0.0, "gpu": 6.0},
        "guaranteed": {"cpu": 0.0, "memory": 0.0, "gpu": 0.5},
        "own": {"cpu": 8000.0, "memory": 0.0, "gpu": 4.0},
        "borrowed": {"cpu": 0.0, "memory": 0.0, "gpu": 2.0},
    }


def test_the_tree_of_queues(sh: Shell, server: LiveServer, client: Client) -> None:
    a_tree(server, client)
    rows = [line.rpartition(" ")[0].rstrip() for line in sh("get", "queues").lines]
    assert [" ".join(row.split()) for row in rows] == [
        "NAME PENDING RUNNING CPU MEMORY GPU OWN BORROWED WEIGHT",
        "default 0 0 0 0 0 - - 1",
        "research 1 3 0.5 0 6/8 cpu 8, gpu 4 gpu 2 1",
        "speech 0 1 0.5 0 0.5 - cpu 0.5, gpu 0.5 1",
        "vision 1 2/4 0 0 5.5 gpu 3 gpu 2.5 2",
    ]
    assert [row[:4] for row in rows[2:]] == ["rese", "  sp", "  vi"], "below is indented"
    (_, alone) = sh("get", "queue/vision", "-o", "wide").lines
    assert " ".join(alone.split()[:11]) == "vision 1 2/4 0 0 5.5 gpu 3 gpu 2.5 2"
    assert " ".join(alone.split()[-4:]) == "gpu 0.5 - a,b"


@pytest.mark.slow
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
