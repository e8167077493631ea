"""Every declared family of metrics changes when the thing happens that it is about."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import metrics
from shoal.background import Backoff, SupervisedThread
from shoal.cluster.base import Refusal
from shoal.cluster.simulated import run_for
from shoal.control.cache import ObjectCache
from shoal.objects.errors import Conflict
from shoal.objects.job import Job, JobSpec, Restart, Role
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.task import TaskSpec
from shoal.server import listeners
from shoal.store.base import SYSTEM
from shoal.testing.plane import Plane, capacity
from shoal.testing.store.raw import put_document
from tests.server import harness
from tests.server.harness import LiveServer
from tests.server.raw import Raw


def _scrape(server: LiveServer) -> dict[str, float]:
    """Sum of each family's samples, counts of histograms, as `/metrics` gives them."""
    with Raw(server.home.api_socket) as raw:
        raw.send("GET /metrics HTTP/1.1")
        status, _, body = raw.answer()
    assert status == 200
    found: dict[str, float] = {}
    for line in body.decode().splitlines():
        if line.startswith("#") or "_bucket{" in line or "_created" in line:
            continue
        name, value = line.partition("{")[0].partition(" ")[0], float(line.rpartition(" ")[2])
        found[name] = found.get(name, 0.0) + value
    return found


def _declared() -> Iterator[tuple[str, bool]]:
    """The name of each family's sample, and whether it only grows."""
    for family in metrics.REGISTRY.collect():
        suffix = {"counter": "_total", "histogram": "_count", "info": "_info"}.get(family.type, "")
        yield f"{family.name}{suffix}", family.type in ("counter", "histogram")


def _schedule(plane: Plane) -> None:
    """A job that fails and starts again, one refused after its reconcile failed, and a status
    that conflicts."""
    role = Role(command=("false",))
    spec = JobSpec(roles=(role,), restart=Restart(limit=1))
    plane.submit(Job(metadata=Metadata(name="fails"), spec=spec))
    plane.until(lambda: plane.job("fails").status.phase == "Failed")
    refusal = Refusal(node="n0", reason="Memory", message="node n0 refuses it")
    failures = [RuntimeError("the cluster has a bug")]

    def ensure(group: tuple[TaskSpec, ...]) -> None:
        if failures:
            raise failures.pop()
        for spec in group:
            plane.cluster.refuse(spec, refusal)

    plane.cluster.ensure = ensure  # type: ignore[method-assign]
    plane.submit(Job(metadata=Metadata(name="refused"), spec=JobSpec(roles=(role,))))
    plane.advance(5)
    assert not failures
    with pytest.raises(Conflict):
        plane.store.patch_status(
            JOB,
            "default",
            "fails",
            actor=SYSTEM,
            writer="job",
            uid="",
            counter=99,
            fields={},
        )


def _quarantine(plane: Plane) -> None:
    document = {
        "kind": "Job",
        "metadata": {"name": "odd", "namespace": "default", "uid": "u"},
        "spec": 7,
    }
    put_document(plane.store, JOB, document)
    cache: ObjectCache[Job] = ObjectCache(plane.store, JOB, actor=SYSTEM, clock=plane.clock)
    cache.sync()
    assert cache.undecodable()


def _fail(stopping: threading.Event) -> SupervisedThread:
    """A thread that has failed once, and runs."""
    failed = threading.Event()

    def loop() -> None:
        if not failed.is_set():
            failed.set()
            raise OSError("once")
        stopping.wait()

    thread = SupervisedThread("odd-1", loop, stopping, backoff=Backoff(first_seconds=0.001))
    thread.start()
    harness.eventually(lambda: thread.report().restarts == 1)
    return thread


@pytest.mark.slow
def test_every_declared_family_has_samples_after_activity(tmp_path: Path) -> None:
    plane = Plane({"n0": capacity(8)}, run_for(3, exit_code=1))
    server = LiveServer(tmp_path / "home", store=plane.store)
    stopping = threading.Event()
    try:
        before = _scrape(server)
        _schedule(plane)
        _quarantine(plane)
        _fail(stopping)
        with Raw(server.home.tasks_socket) as raw:
            raw.send("GET /api/v1/jobs HTTP/1.1")
            assert raw.answer()[0] == 401
        with pytest.MonkeyPatch.context() as patch, Raw(server.home.tasks_socket) as raw:
            patch.setitem(listeners._WIDTH, "tasks", 0)
            raw.send("GET /healthz HTTP/1.1")
            assert b"503" in raw.until_closed()
        with Raw(server.home.api_socket) as raw:
            raw.send("GET /api/v1/jobs?watch=1 HTTP/1.1")
            raw.until(b"Bookmark")
            after = _scrape(server)
    finally:
        stopping.set()
        server.close()
    missing = [name for name, _ in _declared() if name not in after]
    assert not missing
    idle = [name for name, grows in _declared() if grows and after[name] <= before.get(name, 0.0)]
    assert not idle
    for gauge in ("shoal_undecodable_objects", "shoal_http_connections", "shoal_watches"):
        assert after[gauge] > 0, gauge


@pytest.mark.slow
def test_requests_are_counted_by_route_template_and_unknown_ones_together(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "home")
    try:
        for path in ("/api/v1/namespaces/default/jobs/private-name", "/nothing/private-name"):
            with Raw(server.home.api_socket) as raw:
                raw.send(f"GET {path} HTTP/1.1")
                assert raw.answer()[0] == 404
        text = metrics.render().decode()
    finally:
        server.close()
    assert "private-name" not in text
    labels = 'method="GET",route="/api/v1/namespaces/{namespace}/{plural}/{name}",status="404"'
    assert f"shoal_http_requests_total{{{labels}}}" in text
