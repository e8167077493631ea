"""Experiments beside other jobs, in virtual time: quotas of teams, preemption by production, and which
trials are preempted first."""

from __future__ import annotations

from collections import Counter

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB, QUEUE
from shoal.server.reports import explanation_of
from shoal.testing.plane import Plane
from tests.search.test_experiments import ASHA
from tests.search.world import SearchPlane


def queue(plane: SearchPlane, name: str, **spec: object) -> None:
    plane.create(QUEUE, {"metadata": {"name": name}, "spec": spec})


def production(plane: SearchPlane, name: str, cpus: int, queue: str = "default") -> Job:
    role = {"command": ["serve"], "replicas": cpus}
    spec = {"queue": queue, "priority": "production", "roles": [role]}
    return plane.create(JOB, {"metadata": {"name": name}, "spec": spec})


def running(plane: SearchPlane) -> Counter[str]:
    """Running jobs by their experiment; jobs of no experiment by their name."""
    label = "shoal.dev/experiment"
    return Counter(
        job.metadata.labels.get(label, job.metadata.name)
        for job in plane.jobs()
        if job.status.phase == "Running"
    )


@pytest.mark.slow
def test_two_teams_share_beside_a_production_job() -> None:
    plane = SearchPlane(cpus=8, seconds=20)
    for team in ("team-a", "team-b"):
        queue(plane, team, quota={"cpu": 6})
        template = {"spec": {"queue": team, "roles": [{"command": ["train", "${x}", "${y}"]}]}}
        plane.apply(team, parallel=6, maxTrials=12, template=template)
    queue(plane, "production", nominal={"cpu": 4})
    plane.advance(5)
    assert running(plane) == {"team-a": 4, "team-b": 4}
    production(plane, "serve", 4, "production")
    plane.advance(2)
    assert running(plane) == {"team-a": 2, "team-b": 2, "serve": 1}
    waiting = [job for job in plane.jobs() if job.status.phase == "Pending"]
    holding = {f"default/{job.metadata.name}" for job in plane.jobs() if job.status.phase == "Running"}
    for job in waiting:
        found = explanation_of(JOB, job, history=None, cluster=plane.cluster, control=plane.context)
        assert "CPU" in found.message
        assert set(found.evidence["holders"]) <= holding
    preempted = {job.metadata.name for job in waiting if job.status.started}
    assert len(preempted) == 4
    Plane.edit(plane, "serve", cancelled=True)
    plane.advance(2)
    assert running(plane) == {"team-a": 4, "team-b": 4}
    for team in ("team-a", "team-b"):
        ended = plane.finish(team)
        assert (ended.status.phase, ended.status.trials.succeeded) == ("Succeeded", 12)
    assert all(
        trial.status.retries == 0 for team in ("team-a", "team-b") for trial in plane.trials(team)
    )


def test_low_fidelity_is_preempted_first() -> None:
    plane = SearchPlane(cpus=2, seconds=30)
    plane.curves.silent.add(0)
    plane.apply(maxTrials=2, parallel=1, earlyStopping=ASHA)
    plane.advance(2)
    plane.edit(parallel=2)
    plane.advance(5)
    low, high = sorted(plane.jobs(), key=lambda job: job.metadata.name)
    assert (low.spec.priority, high.spec.priority) == (-8, -7)
    production(plane, "serve", 1)
    plane.advance(2)
    assert running(plane) == {"search": 1, "serve": 1}
    # the newest is preempted first among equals: the older trial has reported nothing
    assert plane.job(high.metadata.name).status.phase == "Running"
