from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from shoal.cluster.base import Task
from shoal.control.cache import ObjectCache
from shoal.control.metric_collector import MetricCollector, MetricFeed
from shoal.history.base import JobKey, LogKey
from shoal.objects import codec
from shoal.objects.experiment import EXPERIMENT_LABEL, TRIAL_LABEL, Experiment
from shoal.objects.job import Job
from shoal.objects.kinds import EXPERIMENT, JOB, TRIAL
from shoal.objects.meta import Metadata
from shoal.objects.task import Endpoint, Placement, TaskSpec
from shoal.objects.trial import Trial, TrialSpec
from shoal.store.base import SYSTEM
from shoal.store.memory import MemoryStore
from shoal.testing.clock import VirtualClock
from tests.control.test_cache import new_job
from tests.scenarios.fields import shows
from tests.search.conftest import claims_are_written  # noqa: F401  it holds for these tests too
from tests.search.world import WRITTEN
from tests.support.memory_history import MemoryHistory, MemoryLogs

KEY = ("default", "search-0")


class World:
    """An experiment with one trial, whose job writes; `restart` makes a new controller over the same
    store and history."""

    def __init__(self, folder: Path, **collector: Any) -> None:
        self.store, self.folder = MemoryStore(), folder
        self.tasks: list[Task] = []
        self.history, self.logs = MemoryHistory(), MemoryLogs()
        document = {
            "apiVersion": "shoal.dev/v1alpha1", "kind": "Experiment", "metadata": {"name": "search"},
            "spec": {
                "objectives": [{"metric": "loss", "direction": "minimize"}],
                "parameters": [{"name": "lr", "type": "float", "min": 0.0, "max": 1.0}],
                "template": {
                    "spec": {"roles": [{"command": ["true", "${lr}"], "ports": [{"name": "metrics"}]}]}
                },
                "metricsCollector": collector,
            },
        }  # fmt: skip
        WRITTEN.append((EXPERIMENT, document))
        self.store.create(codec.convert(document, Experiment), actor=SYSTEM)
        labels = {EXPERIMENT_LABEL: "search", TRIAL_LABEL: "search-0"}
        job = new_job("search-0")
        metadata = Metadata(name="search-0", labels=labels)
        self.job = self.store.create(Job(metadata=metadata, spec=job.spec), actor=SYSTEM)
        trial = Trial(metadata=metadata, spec=TrialSpec(experiment="search", number=0))
        self.store.create(trial, actor=SYSTEM)
        self.restart()

    def of_job(self, job_uid: str) -> tuple[Task, ...]:
        """See `TaskCache.of_job`."""
        return tuple(self.tasks)

    def restart(self) -> None:
        clock = VirtualClock()
        caches = [
            ObjectCache(self.store, kind, actor=SYSTEM, clock=clock) for kind in (JOB, EXPERIMENT, TRIAL)
        ]
        self.caches = caches
        self.feed = MetricFeed(self.history)
        self.collector = MetricCollector(
            caches[0],
            caches[1],
            caches[2],
            self.feed,
            self.history,
            self.logs,
            lambda ns, uid: self.folder,
            self,  # type: ignore[arg-type]  # only `of_job` is used
        )
        self.sync()

    def sync(self) -> None:
        for cache in self.caches:
            cache.sync()

    def write(self, data: bytes, incarnation: int = 1) -> None:
        key = LogKey(
            namespace="default", job="search-0", job_uid=self.uid, role="worker", index=0,
            incarnation=incarnation,
        )  # fmt: skip
        self.logs.append(key, 1.0, data)

    @property
    def uid(self) -> str:
        return self.job.metadata.uid

    def status(self, kind: Any, phase: str, writer: str) -> None:
        now = self.store.record(kind, *KEY, actor=SYSTEM).object
        self.store.patch_status(
            kind, *KEY, actor=SYSTEM, writer=writer, uid=now.metadata.uid,
            counter=now.status.writers.get(writer, 0), fields={"phase": phase},
        )  # fmt: skip
        self.sync()

    def collect(self) -> float | None:
        return self.collector.reconcile(KEY, 100.0)

    @property
    def values(self) -> list[float]:
        return [each.value for each in self.feed.points("default", self.uid)]


@shows(EXPERIMENT, "spec.metricsCollector.kind")
def test_output_is_collected_line_by_line(tmp_path: Path) -> None:
    world = World(tmp_path, kind="StdOut")
    world.write(b"epoch 1 loss=0.5 other=1\nepoch 2 lo")
    assert world.collect() == pytest.approx(0.3)
    assert world.values == [0.5]
    world.write(b"ss=0.25\nloss=0.1")
    world.collect()
    assert world.values == [0.5, 0.25]
    assert not world.feed.complete("default", world.uid)
    world.status(JOB, "Succeeded", "job")
    assert world.collect() is None
    assert world.values == [0.5, 0.25, 0.1]
    assert world.feed.complete("default", world.uid)


def test_a_restart_doubles_and_loses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, kind="StdOut")
    for number in range(20):
        world.write(b"loss=%d loss=%d\n" % (number, number))
        if number % 2:
            world.collect()
        if number % 3:
            world.restart()
    world.status(JOB, "Succeeded", "job")
    world.collect()
    assert world.values == [float(n) for n in range(20) for _ in range(2)]


def test_each_incarnation_has_its_log(tmp_path: Path) -> None:
    world = World(tmp_path, kind="StdOut")
    world.write(b"loss=1\n", incarnation=1)
    world.write(b"loss=2\n", incarnation=2)
    world.collect()
    assert world.values == [1.0, 2.0]


def test_the_end_of_collecting_is_announced(tmp_path: Path) -> None:
    world, seen = World(tmp_path, kind="StdOut"), list[JobKey]()
    world.feed.on_change(lambda _, job: seen.append(job))
    world.status(JOB, "Failed", "job")
    assert not world.feed.complete("default", world.uid)
    world.collect()
    world.feed.sync()
    assert [each.uid for each in seen] == [world.uid]
    assert world.feed.complete("default", world.uid)


def test_a_trial_that_has_ended_is_not_read_again(tmp_path: Path) -> None:
    world = World(tmp_path, kind="StdOut")
    world.write(b"loss=1\n")
    world.status(TRIAL, "Succeeded", "experiment")
    assert world.collect() is None
    assert world.values == []


def test_without_a_collector_reports_alone_count(tmp_path: Path) -> None:
    world = World(tmp_path, kind="none")
    world.write(b"loss=1\n")
    assert world.collect() is None
    assert (world.values, world.feed.complete("default", world.uid)) == ([], True)
    assert world.feed.complete("default", "unknown")


@shows(EXPERIMENT, "spec.metricsCollector.path", "spec.metricsCollector.format")
def test_a_json_file(tmp_path: Path) -> None:
    world = World(tmp_path, kind="File", path="logs/points.json", format="JSON")
    assert world.collect() == pytest.approx(0.3)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/points.json").write_bytes(b'{"loss": 0.5}\n{"loss": "0.25"}\n{"lo')
    world.collect()
    assert world.values == [0.5, 0.25]
    with (tmp_path / "logs/points.json").open("ab") as file:
        file.write(b'ss": 0.125, "step": 9}')
    world.restart()
    world.status(JOB, "Succeeded", "job")
    world.collect()
    assert world.values == [0.5, 0.25, 0.125]
    assert [each.step for each in world.feed.points("default", world.uid)] == [None, None, 9]


def test_a_file_outside_of_the_output_folder_is_not_read(tmp_path: Path) -> None:
    secret, output = tmp_path / "secret", tmp_path / "output"
    secret.mkdir()
    output.mkdir()
    (secret / "points").write_text("loss=1\n")
    world = World(output, kind="File", path="points")
    (output / "points").symlink_to(secret / "points")
    world.collect()
    world.folder = output / "folder"
    (output / "folder").mkdir()
    os.mkfifo(output / "folder" / "points")
    world.collect()
    assert world.values == []


def test_event_files(tmp_path: Path) -> None:
    from tests.search.test_metric_formats import event, record, simple

    world = World(tmp_path, kind="TensorFlowEvent", path="tb")
    (tmp_path / "tb").mkdir()
    path = tmp_path / "tb" / "events.out.tfevents.1"
    one, two = (record(event(n, simple("loss", value))) for n, value in ((1, 0.5), (2, 0.25)))
    path.write_bytes(one + two[:-3])
    world.collect()
    assert world.values == [0.5]
    path.write_bytes(one + two)
    world.restart()
    world.collect()
    assert world.values == [0.5, 0.25]
    (tmp_path / "tb" / "tfevents.bad").write_bytes(b"\xff" * 100)
    world.status(JOB, "Succeeded", "job")
    assert world.collect() is None
    assert world.values == [0.5, 0.25]


@shows(EXPERIMENT, "spec.metricsCollector.filters", "spec.metricsCollector.metrics")
def test_filters_and_further_metrics_decide_what_is_collected(tmp_path: Path) -> None:
    world = World(tmp_path, kind="StdOut", filters=[r"(\w+) is (\d+)"], metrics=["size"])
    world.write(b"loss is 3, size is 7, other is 1\nloss=2\n")
    world.collect()
    points = world.feed.points("default", world.uid)
    assert [(each.name, each.value) for each in points] == [("loss", 3.0), ("size", 7.0)]


@pytest.fixture
def endpoint() -> Iterator[tuple[Gauge, dict[str, int]]]:
    """A gauge of a program, and the ports of its task."""
    registry = CollectorRegistry()
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield Gauge("loss", "of training", registry=registry), {"metrics": server.server_port}
    server.shutdown()
    server.server_close()
    thread.join()


def task_with(ports: dict[str, int]) -> Task:
    spec = TaskSpec(
        namespace="default", name="search-0-worker", job="search-0", job_uid="u", role="worker",
        index=0, attempt=1, incarnation=1, placement=Placement(node="n0"), command=("true",),
    )  # fmt: skip
    at = Endpoint(role="worker", index=0, task=spec.name, node="n0", host="127.0.0.1", ports=ports)
    return Task(spec=spec, phase="Running", endpoint=at)


@shows(EXPERIMENT, "spec.metricsCollector.port")
def test_an_endpoint_is_read_while_its_task_runs(
    tmp_path: Path, endpoint: tuple[Gauge, dict[str, int]]
) -> None:
    world = World(tmp_path, kind="PrometheusMetric", port="metrics")
    gauge, ports = endpoint
    assert world.collect() is not None
    world.tasks = [task_with(ports)]
    for at, value in enumerate((0.5, 0.5, 0.25)):
        gauge.set(value)
        world.collector.reconcile(KEY, 100.0 + at)
    assert world.values == [0.5, 0.25], "an unchanged value is not a new point"
    world.restart()
    world.collector.reconcile(KEY, 104.0)
    assert world.values == [0.5, 0.25], "a restart doubles nothing"
    world.tasks = []
    world.status(JOB, "Succeeded", "job")
    assert world.collect() is None
    assert world.collector.is_collected(world.uid)


@pytest.mark.slow
def test_an_endpoint_that_sends_slowly_holds_nothing_up(tmp_path: Path) -> None:
    world = World(tmp_path, kind="PrometheusMetric", port="metrics")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        world.tasks = [task_with({"metrics": silent.getsockname()[1]})]
        begun = time.monotonic()
        assert world.collect() is not None
        assert time.monotonic() - begun < 5
    assert world.values == []
