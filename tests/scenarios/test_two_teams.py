"""The example of two teams, on two nodes of four cores: what is lent comes back, and is lent again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.objects.job import Job
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue
from shoal.testing.local import nodes
from tests.scenarios.standing import Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "two-teams.yaml"
STAY = "exec sleep 120"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standing]:
    size = {"cpu": CpuMillis(4000), "memory": Bytes(2 << 30)}
    with Standing(tmp_path / "home", nodes(one=size, two=size)) as standing:
        yield standing


def workers(cluster: Standing, job: Job, count: int) -> Job:
    """Wait until so many run."""
    return cluster.until(
        job, lambda j: sum(r.running for r in j.status.roles) == count, f"{count} tasks run"
    )


def test_what_is_lent_comes_back(cluster: Standing) -> None:
    applied = cluster.cli("apply", "-y", "-f", str(EXAMPLE))
    assert applied.code == 0, applied.err
    one = {"resources": {"cpu": "1"}}
    vision = cluster.job(role(STAY, replicas=8, minReplicas=1, **one), queue="vision")
    workers(cluster, vision, 8)
    queue = cluster.until_queue("vision", lambda q: q.status.usage.cpu == 8000)
    assert queue.spec.nominal.cpu == 5000
    speech = cluster.job(role(STAY, replicas=3, **one), queue="speech")
    cluster.running(speech)
    workers(cluster, vision, 5)
    assert cluster.look(vision).status.failures == 0
    more = cluster.job(role(STAY, **one), queue="speech")
    assert cluster.waiting(more) == "Limit"
    shown = cluster.cli("get", "queues").out.decode().splitlines()
    assert [line.split()[0] for line in shown] == ["NAME", "default", "research", "speech", "vision"]
    cluster.client.cancel("default", speech.metadata.name)
    cluster.running(more)
    workers(cluster, vision, 7)


def test_its_queues_hang_together(cluster: Standing) -> None:
    cluster.cli("apply", "-y", "-f", str(EXAMPLE))
    again = cluster.cli("apply", "-f", str(EXAMPLE))
    assert again.out.count(b"unchanged") == 3
    refused = cluster.cli("delete", "queue/research", "-y")
    assert "queue research is above speech, vision" in refused.err
    assert cluster.client.get(Queue, "", "speech").spec.parent == "research"
