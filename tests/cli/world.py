"""Putting a server's objects into states that controllers would put them into."""

from __future__ import annotations

import time
from typing import Any

from shoal.clock import SystemClock
from shoal.cluster.simulated import Script, SimulatedCluster
from shoal.history.base import About, Entry, LogKey
from shoal.objects import codec
from shoal.objects.job import Job
from shoal.objects.kinds import JOB, NODE
from shoal.objects.meta import Condition
from shoal.objects.node import Capacity, Node
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Placement, TaskSpec, task_name
from shoal.store.base import SYSTEM
from shoal.testing.cluster import start_group
from tests.server.harness import LiveServer

__all__ = ["a_cluster", "event", "node_ready", "start_task", "status", "write_log"]


def status(server: LiveServer, job: Job, *, writer: str = "job", **fields: Any) -> Job:
    """Write fields (wire names) of a job's status as its controllers do."""
    now = server.store.get(Job, *job.key, actor=SYSTEM)
    record = server.store.patch_status(
        JOB,
        *job.key,
        actor=SYSTEM,
        writer=writer,
        uid=now.metadata.uid,
        counter=now.status.writers.get(writer, 0),
        fields={name: codec.builtins(value) for name, value in fields.items()},
    )
    return record.object


def node_ready(server: LiveServer, name: str) -> None:
    """Let the node answer."""
    now = server.store.get(Node, "", name, actor=SYSTEM)
    ready = Condition(type="Ready", status="True", changed=time.time())
    server.store.patch_status(
        NODE,
        "",
        name,
        actor=SYSTEM,
        writer="node",
        uid=now.metadata.uid,
        counter=now.status.writers.get("node", 0),
        fields={"conditions": codec.builtins((ready,))},
    )


def event(server: LiveServer, job: Job, identity: str, reason: str, message: str) -> None:
    """Record an event of the job."""
    namespace, name = job.key
    about = About(kind="Job", namespace=namespace, name=name, uid=job.metadata.uid)
    entry = Entry(id=identity, type="event", about=about, at=time.time(), reason=reason, message=message)
    server.history.append((entry,))


def write_log(server: LiveServer, job: Job, index: int, data: bytes, incarnation: int = 1) -> None:
    """Let a task of the job have written this."""
    namespace, name = job.key
    key = LogKey(
        namespace=namespace, job=name, job_uid=job.metadata.uid, role="worker", index=index,
        incarnation=incarnation,
    )  # fmt: skip
    server.logs.append(key, time.time(), data)


def a_cluster() -> SimulatedCluster:
    """Two nodes whose tasks run until they are stopped."""
    size = Capacity(cpu=CpuMillis(4000), memory=Bytes(2**33))
    return SimulatedCluster(SystemClock(), {"n1": size, "n2": size}, lambda spec: Script())


def start_task(cluster: SimulatedCluster, job: Job, index: int, node: str) -> None:
    """Run one task of the job."""
    namespace, name = job.key
    uid = job.metadata.uid
    spec = TaskSpec(
        namespace=namespace, name=task_name(name, uid, "worker", index, 1), job=name, job_uid=uid,
        role="worker", index=index, attempt=1, incarnation=1, placement=Placement(node=node),
        command=("x",), cpu=CpuMillis(1000),
    )  # fmt: skip
    start_group(cluster, (spec,))
