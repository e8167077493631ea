"""How fast jobs say that they are, shown on the sizes that two simulated ones get on six cores."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from tests.scenarios.fields import shows
from tests.scenarios.simulated import Simulated, role

pytestmark = pytest.mark.slow

STEEP = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
FLAT = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]


def elastic(simulated: Simulated, **speed: Any) -> Job:
    """One to six tasks of a core each."""
    tasks = role("sleep 3600", replicas=6, minReplicas=1, resources={"cpu": "1"})
    return simulated.job(tasks, speed=speed)


def until_sizes(simulated: Simulated, *expected: tuple[Job, int]) -> None:
    for job, count in expected:
        simulated.until(job, lambda j, n=count: size(j) == n, f"{count} tasks run")


def size(job: Job) -> int:
    return sum(each.running for each in job.status.roles)


@shows(JOB, "spec.speed.curve")
def test_who_gains_more_by_a_task_gets_it(simulated: Simulated) -> None:
    flat = elastic(simulated, curve=FLAT)
    until_sizes(simulated, (flat, 6))
    steep = elastic(simulated, curve=STEEP)
    until_sizes(simulated, (steep, 5), (flat, 1))


@shows(JOB, "spec.speed.work")
def test_who_has_little_left_gets_more(simulated: Simulated) -> None:
    long = elastic(simulated, curve=STEEP, work=100_000.0)
    until_sizes(simulated, (long, 6))
    short = elastic(simulated, curve=STEEP, work=1000.0)
    simulated.until(short, lambda j: size(j) > 3, "the short one has more than half")


@shows(JOB, "spec.speed.restart")
def test_who_would_lose_more_by_a_change_than_it_gains_is_left_as_it_is(simulated: Simulated) -> None:
    dear = elastic(simulated, curve=STEEP, restart="1h")
    until_sizes(simulated, (dear, 1))
    cheap = elastic(simulated, curve=STEEP, restart="100ms")
    until_sizes(simulated, (cheap, 5))
    simulated.pass_time(60.0)
    assert size(simulated.look(dear)) == 1
