"""Ten thousand pending jobs: pages, durable creates, how soon a watch hears, and memory."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from pathlib import Path

from bench.home import fresh_home, server_pid
from bench.processes import SHOAL, memory_mb, wall_ms
from bench.row import Row, p50, p95
from shoal.client import Client
from shoal.objects.codec import encode
from shoal.objects.job import Job, JobSpec, Resources, Role
from shoal.objects.kinds import KINDS
from shoal.objects.meta import Metadata
from shoal.objects.quantities import CpuMillis
from shoal.store.base import SYSTEM
from shoal.store.sql import open_sql

__all__ = ["rows"]

_JOBS = 10_000


def rows() -> list[Row]:
    """Six rows from one home whose jobs ask for more than its node has free."""
    with fresh_home() as home:
        wall_ms([SHOAL, "up", "--cpu", "2"], home)
        blocker = _job("blocker", ("sleep", "100000"), cpu=2000)
        with Client.connect(home=home["SHOAL_HOME"]) as client:
            client.create(blocker, actor=SYSTEM)
            creates = _create_all(client)
            reactions = _reactions(client)
            time.sleep(5)  # let the scheduler say why each of them waits: the steady state is measured
            resident = memory_mb(server_pid(home))
            pages = [wall_ms([SHOAL, "get", "jobs", "--limit", "100"], home) for _ in range(10)]
        direct = _pages(Path(home["SHOAL_HOME"], "store.db"))
    floor = _sqlite_floor()
    beside = f"sqlite3 insert + fsync: {floor:.2f} ms"
    heard = f"p50 {p50(reactions):.1f}; the figure is p95"
    return [
        Row("page of 100 of 10,000 jobs, store", 20, p50(direct), "ms", f"p95 {p95(direct):.1f}"),
        Row("the same through the command line", 200, p50(pages), "ms", f"p95 {p95(pages):.0f}"),
        Row("create acknowledged, durable", 5, p50(creates), "ms", f"p95 {p95(creates):.1f}", beside),
        Row("create to a watch elsewhere", 30, p95(reactions), "ms", heard),
        Row("server with 10,000 jobs", 150, resident, "MB"),
    ]


def _job(name: str, command: tuple[str, ...], cpu: int = 1000) -> Job:
    role = Role(command=command, resources=Resources(cpu=CpuMillis(cpu)))
    return Job(metadata=Metadata(name=name), spec=JobSpec(roles=(role,)))


def _create_all(client: Client) -> list[float]:
    times: list[float] = []
    for number in range(_JOBS):
        began = time.perf_counter()
        client.create(_job(f"job-{number:05}", ("true",)), actor=SYSTEM)
        times.append((time.perf_counter() - began) * 1000)
    return times


def _reactions(client: Client) -> list[float]:
    """Milliseconds from just before a create to its event at another client's watch."""
    page = client.list(KINDS["Job"], actor=SYSTEM, limit=1)
    seen: dict[str, float] = {}
    enough = threading.Event()

    def listen() -> None:
        watch = client.watch(KINDS["Job"], actor=SYSTEM, version=page.version)
        try:
            while not enough.is_set():
                for event in watch.wait(0.2):
                    if event.record is not None:
                        seen.setdefault(event.record.object.metadata.name, time.perf_counter())
        finally:
            watch.close()

    listener = threading.Thread(target=listen)
    listener.start()
    began: dict[str, float] = {}
    for number in range(100):
        name = f"late-{number:03}"
        began[name] = time.perf_counter()
        client.create(_job(name, ("true",)), actor=SYSTEM)
        time.sleep(0.02)
    deadline = time.monotonic() + 10
    while not began.keys() <= seen.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    enough.set()
    listener.join()
    return [(seen[name] - at) * 1000 for name, at in began.items()]


def _pages(path: Path) -> list[float]:
    store, times = open_sql(path), list[float]()
    try:
        for _ in range(20):
            began = time.perf_counter()
            page = store.list(KINDS["Job"], actor=SYSTEM, limit=100)
            times.append((time.perf_counter() - began) * 1000)
            assert len(page.records) == 100
    finally:
        store.close()
    return times


def _sqlite_floor() -> float:
    document = encode(_job("floor", ("true",)))
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder, "floor.db"), isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE objects (name TEXT PRIMARY KEY, document BLOB)")
        for number in range(200):
            began = time.perf_counter()
            connection.execute("INSERT INTO objects VALUES (?, ?)", (str(number), document))
            times.append((time.perf_counter() - began) * 1000)
        connection.close()
    return p50(times)
