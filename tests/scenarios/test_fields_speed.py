"""How fast jobs say that they are, shown on the sizes that two of them get on six cores."""

from __future__ import annotations

import time
from typing import Any

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from tests.scenarios.fields import shows
from tests.scenarios.standing import Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

STEEP = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
FLAT = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]


def elastic(cluster: Standing, **speed: Any) -> Job:
    """One to six tasks of a core each."""
    tasks = role("exec sleep 60", replicas=6, minReplicas=1, resources={"cpu": "1"})
    return cluster.job(tasks, speed=speed)


def until_sizes(cluster: Standing, *expected: tuple[Job, int]) -> None:
    for job, count in expected:
        cluster.until(job, lambda j, n=count: size(j) == n, f"{count} tasks run")


def size(job: Job) -> int:
    return sum(each.running for each in job.status.roles)


@shows(JOB, "spec.speed.curve")
def test_who_gains_more_by_a_task_gets_it(cluster: Standing) -> None:
    flat = elastic(cluster, curve=FLAT)
    until_sizes(cluster, (flat, 6))
    steep = elastic(cluster, curve=STEEP)
    until_sizes(cluster, (steep, 5), (flat, 1))


@shows(JOB, "spec.speed.work")
def test_who_has_little_left_gets_more(cluster: Standing) -> None:
    long = elastic(cluster, curve=STEEP, work=100_000.0)
    until_sizes(cluster, (long, 6))
    short = elastic(cluster, curve=STEEP, work=1000.0)
    cluster.until(short, lambda j: size(j) > 3, "the short one has more than half")


@shows(JOB, "spec.speed.restart")
def test_who_would_lose_more_by_a_change_than_it_gains_is_left_as_it_is(cluster: Standing) -> None:
    dear = elastic(cluster, curve=STEEP, restart="1h")
    until_sizes(cluster, (dear, 1))
    cheap = elastic(cluster, curve=STEEP, restart="100ms")
    until_sizes(cluster, (cheap, 5))
    time.sleep(2.0)
    assert size(cluster.look(dear)) == 1
