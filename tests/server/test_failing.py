"""What fails now and is tried again is shown: in `/readyz`, in `doctor`, in metrics and as events."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from shoal import metrics, statefiles
from shoal.admission.admission import Admission
from shoal.clock import SystemClock
from shoal.cluster.local.settings import ClusterSettings
from shoal.cluster.simulated import SimulatedCluster, run_for
from shoal.history.base import About
from shoal.history.files import FileLogs
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.queue import Queue
from shoal.server.accounts import Accounts
from shoal.server.auth import JobTokens
from shoal.server.components import Components
from shoal.server.event_recorder import Audit
from shoal.server.secrets import Secrets
from shoal.server.services import Services
from shoal.store.base import SYSTEM, allow_all
from shoal.store.memory import MemoryStore
from shoal.testing.plane import capacity
from shoal.testing.store.harness import job, newer_job
from shoal.testing.store.raw import rewrite


class SmallPlatform:
    """One simulated node and a folder."""

    name, task_api = "test", "unix:///nowhere"

    def __init__(self, folder: Path) -> None:
        self.keys = self.decisions = folder
        self.history = folder / "history.db"
        self.logs = FileLogs(folder)
        self.cluster = SimulatedCluster(SystemClock(), {"a": capacity(4)}, run_for(None))

    def output(self, namespace: str, job_uid: str) -> None:
        return None

    def settings(self) -> ClusterSettings:
        return ClusterSettings()

    def warnings(self) -> tuple[str, ...]:
        return ()

    def on_warning(self, report) -> None:
        pass

    def workers(self) -> tuple:
        return ()

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.slow
def test_objects_that_cannot_be_decoded_or_reconciled_are_shown(tmp_path: Path) -> None:
    store, clock, audit = MemoryStore(), SystemClock(), Audit()
    tokens, accounts = JobTokens.of(tmp_path), Accounts(store, clock)
    secrets = Secrets(store, tmp_path, clock)
    components = Components(
        SmallPlatform(tmp_path), store, clock, tokens=tokens, audit=audit, secrets=secrets
    )
    admission = Admission(store, list, tuple, authorise=allow_all)
    services = Services(
        store=store,
        admission=admission,
        clock=clock,
        accounts=accounts,
        audit=audit,
        secrets=secrets,
    )
    newer = store.create(newer_job("newer"), actor=SYSTEM)
    store.create(job("odd"), actor=SYSTEM)
    roles = [{"name": "", "nodes": "zero=a", "outcomes": "what"}]
    rewrite(store, JOB, "odd", status=lambda old: old | {"roles": roles})
    key = tmp_path / "key"
    key.write_bytes(b"garbage")
    assert statefiles.read(key, msgspec.json.decode, lambda _: None) is None
    end = statefiles.on_damage(components.state_damaged)
    components.start(services)
    try:
        until(lambda: len(components.failing()) == 2)
        assert all(state == "ok" for state in components.readiness().values())
        odd, undecodable = components.failing()
        assert "job/default/odd failed" in odd
        assert "job/default/newer cannot be decoded" in undecodable and "quantum" in undecodable
        assert b'shoal_undecodable_objects{kind="Job"} 1.0' in metrics.render()
        assert b'shoal_reconcile_failures_total{controller="job"}' in metrics.render()
        assert b'shoal_thread_restarts_total{thread="job"}' in metrics.render()
        services.history.flush()
        damaged = services.history.entries(about=About(kind="Cluster", namespace="", name="state"))
        assert any(f"{key} is damaged" in entry.message for entry in damaged)
        for name, reason in (("newer", "Undecodable"), ("odd", "ReconcileFailing")):
            about = About(kind="Job", namespace="default", name=name)
            assert reason in {entry.reason for entry in services.history.entries(about=about)}
        about = About(kind="Queue", namespace="default", name="odd", uid="u")
        assert services.control is not None
        repeated = Queue(metadata=Metadata(name="odd", uid="u"))
        services.recorder.event(about, "Repeated", "again", severity="Warning")
        services.audit.wrong(about, "Repeated", "again")
        services.control.recorder.event(repeated, "Repeated", "again", warning=True, at=0.0)
        services.history.flush()
        found = services.history.entries(about=about)
        assert [entry.count for entry in found if entry.reason == "Repeated"] == [3]
        store.delete(JOB, "default", "newer", uid=newer.metadata.uid, actor=SYSTEM)
        rewrite(store, JOB, "odd", status=lambda old: {})
        until(lambda: not components.failing())
    finally:
        end()
        components.stop()
        services.close()


def until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
