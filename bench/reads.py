"""Server time of the reads that grow with the number of tasks: explain, describe node, logs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.row import Row, p50
from shoal.clock import SystemClock
from shoal.cluster.simulated import run_for
from shoal.history.base import LogKey
from shoal.history.files import FileLogs
from shoal.objects import codec
from shoal.objects.job import Job, JobSpec, Resources, Role
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.quantities import CpuMillis
from shoal.server.log_stream import LogQuery, LogStream
from shoal.server.reports import explanation_of, usage_report
from shoal.store.memory import MemoryStore
from shoal.testing.plane import Plane, capacity

__all__ = ["rows"]

_TIMES = 5
_GOAL_MS = 500.0
_NODES = 10


def rows() -> list[Row]:
    """Processor time of the server for one answer; nodes are simulated, logs are files."""
    found: list[Row] = []
    for tasks in (1_000, 10_000):
        plane = _running(tasks)
        found.append(_row(f"explain a job of {tasks:,} tasks", partial(_explain, plane)))
        found.append(_row(f"describe a node, {tasks:,} tasks on {_NODES}", partial(_usage, plane)))
        with tempfile.TemporaryDirectory() as folder:
            logs = _written(Path(folder), tasks)
            found.append(_row(f"logs of {tasks:,} tasks, merged", partial(_read, logs)))
    return found


def _explain(plane: Plane) -> bytes:
    job = plane.job("wide")
    told = explanation_of(JOB, job, history=None, cluster=plane.cluster, control=plane.context)
    return codec.encode(told)


def _usage(plane: Plane) -> bytes:
    return codec.encode(usage_report(plane.cluster, plane.context.tasks, "", 0.0))


def _row(what: str, read: Callable[[], object]) -> Row:
    times: list[float] = []
    for _ in range(_TIMES):
        began = time.process_time()
        read()
        times.append((time.process_time() - began) * 1000)
    return Row(what, _GOAL_MS, p50(times), "ms", f"{min(times):.0f} to {max(times):.0f}")


def _running(tasks: int) -> Plane:
    nodes = {f"n{number}": capacity(tasks / _NODES) for number in range(_NODES)}
    plane = Plane(nodes, run_for(None))
    role = Role(command=("true",), replicas=tasks, resources=Resources(cpu=CpuMillis(1000)))
    plane.submit(Job(metadata=Metadata(name="wide"), spec=JobSpec(roles=(role,))))
    plane.until(lambda: plane.job("wide").status.phase == "Running")
    return plane


_JOB = Job(
    metadata=Metadata(name="wide", namespace="default", uid="u1"),
    spec=JobSpec(roles=(Role(command=("true",)),)),
)


def _written(folder: Path, tasks: int) -> FileLogs:
    logs, now = FileLogs(folder), time.time()
    for index in range(tasks):
        key = LogKey(
            namespace="default", job="wide", job_uid="u1", role="worker", index=index, incarnation=1
        )
        logs.append(key, now - 100 + index * 0.001, b"epoch 1: loss 0.53\nepoch 2: loss 0.41\n")
    return logs


def _read(logs: FileLogs) -> int:
    """Bytes of the whole answer, as it goes over the wire."""
    stream = LogStream(
        _JOB, LogQuery(), logs=logs, store=MemoryStore(), tasks=lambda uid: (), clock=SystemClock()
    )
    size = 0
    while not stream.done:
        size += len(b"".join(stream.step()))
    return size
