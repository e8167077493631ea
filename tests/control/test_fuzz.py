"""Random objects and statuses, written straight into the store, never stop another job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.cluster.simulated import run_for
from shoal.objects.job import Job, JobSpec, Resources, Role
from shoal.objects.kinds import JOB, KINDS, Kind
from shoal.objects.meta import Metadata
from shoal.objects.quantities import CpuMillis
from shoal.testing.plane import Plane, capacity
from shoal.testing.store.raw import put_document, rewrite
from tests.support.strategies import hostile_documents

QUICK = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))


def a_job(name: str, priority: int = 0, replicas: int = 1) -> Job:
    role = Role(command=("true",), replicas=replicas, resources=Resources(cpu=CpuMillis(500)))
    return Job(metadata=Metadata(name=name), spec=JobSpec(roles=(role,), priority=priority))


def raw(kind: Kind, name: str, parts: dict[str, Any]) -> dict[str, Any]:
    space = {"namespace": "default"} if kind.namespaced else {}
    metadata = {
        "name": name,
        **space,
        "uid": f"uid-{kind.name}-{name}",
        "generation": 1,
        "created": 1.8e9,
    }
    return {"apiVersion": "shoal.dev/v1alpha1", "kind": kind.name, "metadata": metadata, **parts}


def statuses() -> st.SearchStrategy[dict[str, Any]]:
    return hostile_documents(Job).map(lambda parts: parts["status"])


def objects() -> st.SearchStrategy[tuple[Kind, dict[str, Any]]]:
    made = [
        hostile_documents(kind.struct).map(lambda parts, kind=kind: (kind, parts))
        for kind in KINDS.values()
    ]
    return st.one_of(made)


def check_statuses(hostile: list[Any]) -> None:
    """Jobs that run have their status overwritten; one that comes afterwards runs to its end."""
    plane = Plane({"n0": capacity(8), "n1": capacity(8)}, run_for(3))
    for number in range(len(hostile)):
        plane.submit(a_job(f"victim-{number}", replicas=2))
    plane.advance(1)
    for number, status in enumerate(hostile):
        rewrite(plane.store, JOB, f"victim-{number}", status=lambda _, status=status: status)
    assert_probe_succeeds(plane)


def check_objects(hostile: list[tuple[Kind, dict[str, Any]]]) -> None:
    plane = Plane({"n0": capacity(8), "n1": capacity(8)}, run_for(3))
    plane.advance(1)
    for number, (kind, parts) in enumerate(hostile):
        put_document(plane.store, kind, raw(kind, f"odd-{number}", parts))
    assert_probe_succeeds(plane)


def assert_probe_succeeds(plane: Plane) -> None:
    plane.submit(a_job("probe", priority=2**31 - 1))
    plane.until(lambda: plane.job("probe").status.phase == "Succeeded", 120)


@QUICK
@given(st.lists(statuses(), min_size=1, max_size=3))
@pytest.mark.slow
def test_no_status_stops_another_job(hostile: list[Any]) -> None:
    check_statuses(hostile)


@QUICK
@given(st.lists(objects(), min_size=1, max_size=4))
@pytest.mark.slow
def test_no_object_stops_another_job(hostile: list[tuple[Kind, dict[str, Any]]]) -> None:
    check_objects(hostile)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@LONG
@given(st.lists(statuses(), min_size=1, max_size=5))
def test_no_status_stops_another_job_for_long(hostile: list[Any]) -> None:
    check_statuses(hostile)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@LONG
@given(st.lists(objects(), min_size=1, max_size=8))
def test_no_object_stops_another_job_for_long(hostile: list[tuple[Kind, dict[str, Any]]]) -> None:
    check_objects(hostile)
