"""A server assembled over a platform that is not the local one: no home, no agents, no local cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.clock import SystemClock
from shoal.cluster.local import home as homes
from shoal.cluster.platform import ClusterSettings, Platform, Worker
from shoal.cluster.simulated import SimulatedCluster, run_for
from shoal.history.files import FileLogs
from shoal.objects.errors import Unavailable
from shoal.objects.job import Job, Resources, Role
from shoal.objects.kinds import NODE
from shoal.objects.node import Capacity, Node
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.server.components import assemble, open_store
from shoal.server.listeners import Listener, Listeners
from shoal.store.base import SYSTEM
from tests.server.harness import a_job, eventually


class CountingWorker:
    """A worker that fails to open once."""

    name = "counting"

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0

    def open(self) -> None:
        self.opened += 1
        if self.opened == 1:
            raise Unavailable("the counting worker needs a second attempt")

    def close(self) -> None:
        self.closed += 1


class SimulatedPlatform:
    """A platform over a simulated cluster that runs in real time."""

    name = "simulated"
    task_api = "unix:///nowhere/api.sock"

    def __init__(self, folder: Path) -> None:
        self.keys = folder / "keys"
        self.keys.mkdir()
        self.decisions = folder / "decisions"
        self.history = folder / "history.db"
        self.worker = CountingWorker()
        self.logs = FileLogs(folder / "logs")
        self.said: list[str] = []
        node = Capacity(cpu=CpuMillis(4000), memory=Bytes(2**33))
        self.cluster = SimulatedCluster(SystemClock(), {"n0": node}, run_for(0.2))
        self.opened = self.closed = 0

    def output(self, namespace: str, job_uid: str) -> None:
        return None

    def settings(self) -> ClusterSettings:
        return ClusterSettings()

    def warnings(self) -> tuple[str, ...]:
        return tuple(self.said)

    def on_warning(self, report: Callable[[str], None]) -> None:
        self.report = report

    def workers(self) -> tuple[Worker, ...]:
        return (self.worker,)

    def open(self) -> None:
        self.opened += 1

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def platform(tmp_path: Path) -> SimulatedPlatform:
    return SimulatedPlatform(tmp_path)


@pytest.fixture
def client(platform: SimulatedPlatform, tmp_path: Path) -> Iterator[Client]:
    listening: Platform = platform
    (tmp_path / "socket").mkdir()
    listener = homes.listen(tmp_path / "socket" / "api.sock")
    clock = SystemClock()
    store = open_store(tmp_path / "store.db", clock)
    assembled = assemble(listening, store, clock, Listeners([Listener("api", listener)]))
    assembled.components.start(assembled.services)
    serving = threading.Thread(target=assembled.serving.run, daemon=True)
    serving.start()
    with Client.connect(tmp_path / "socket") as connected:
        yield connected
    assembled.serving.stop()
    serving.join(30)
    assembled.components.stop()
    assembled.services.close()
    store.close()
    assert (platform.opened, platform.closed) == (1, 1)
    assert platform.worker.closed == 1


@pytest.mark.slow
def test_a_job_runs_on_a_platform_without_a_home(client: Client) -> None:
    client.create(a_job("train"), actor=SYSTEM)
    eventually(lambda: client.get(Job, "default", "train", actor=SYSTEM).status.phase == "Succeeded")


@pytest.mark.slow
def test_sizes_come_from_the_node_objects(client: Client) -> None:
    role = Role(command=("true",), resources=Resources(cpu=CpuMillis(8000)))
    said: list[str] = []
    client.transport.on_warning = said.append
    client.create(a_job("large", roles=(role,)), actor=SYSTEM)
    assert len(said) == 1 and "4" in said[0], said
    (node,) = (record.object for record in client.list(NODE, actor=SYSTEM).records)
    assert isinstance(node, Node) and node.status.capacity.cpu == 4000


@pytest.mark.slow
def test_readiness_names_the_platforms_workers_and_warnings(
    client: Client, platform: SimulatedPlatform
) -> None:
    platform.said.append("a setting is ignored")
    eventually(lambda: client.readiness().ready)
    told = client.readiness()
    assert told.parts["counting"] == "ok" and platform.worker.opened == 2
    assert told.warnings == ("a setting is ignored",)
