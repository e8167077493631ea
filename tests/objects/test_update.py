# ruff: noqa: E501  (messages are quoted whole)
"""What may change after creation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.objects.admit import admit, check_update
from shoal.objects.errors import Invalid
from shoal.objects.job import Job
from shoal.objects.meta import Object
from tests.objects.documents import job, of_kind

BASE: dict[str, Any] = {"roles": [{"command": ["a"], "replicas": 4, "minReplicas": 1}]}
AGAIN = "cannot be changed after creation: delete the job and create it again"


def stored(phase: str = "Running", **spec: Any) -> Job:
    made = admit(job(**{**BASE, **spec}))
    assert isinstance(made, Job)
    status: Any = msgspec.structs.replace(made.status, phase=phase)
    return msgspec.structs.replace(made, status=status)


def refusals(old: Object, new: Object) -> list[str]:
    try:
        check_update(old, new)
    except Invalid as error:
        assert "\n" not in str(error)
        return [str(problem) for problem in error.problems]
    return []


ROLE = {"command": ["a"], "replicas": 4, "minReplicas": 1}


@pytest.mark.parametrize(
    ("phase", "change", "refused"),
    [
        ("Running", {}, []),
        ("Running", {"suspend": True}, []),
        ("Running", {"cancelled": True}, []),
        ("Running", {"priority": "production"}, []),
        ("Running", {"limits": {"wallTime": "1h"}}, []),
        ("Running", {"preemptible": False, "speed": {"curve": [1, 2]}}, []),
        ("Pending", {"user": "ann", "topology": {"required": "rack"}}, [f"spec.user: {AGAIN}", f"spec.topology: {AGAIN}"]),
        ("Succeeded", {"preemptible": False},
         ["spec.preemptible: the job has finished (Succeeded): create it again to run it again"]),
        ("Running", {"ttlAfterFinished": "1h", "gracePeriod": 1, "cleanUp": "All"}, []),
        ("Running", {"roles": [{**ROLE, "replicas": 9, "minReplicas": 2}]}, []),
        ("Running", {"roles": [{"command": ["a"]}]}, []),
        ("Pending", {"queue": "b"}, []),
        ("Suspended", {"queue": "b"}, []),
        ("Running", {"queue": "b"}, ["spec.queue: a job changes its queue only while it is Pending or Suspended"]),
        ("Running", {"runtime": "jax", "isolation": "strict"}, [f"spec.runtime: {AGAIN}", f"spec.isolation: {AGAIN}"]),
        ("Running", {"roles": [{**ROLE, "command": ["b"], "env": {"A": "1"}}]},
         [f"spec.roles[0].command: {AGAIN}", f"spec.roles[0].env: {AGAIN}"]),
        ("Running", {"roles": [ROLE, {"name": "b", "command": ["b"]}]}, [f"spec.roles: the roles and their order {AGAIN}"]),
        ("Pending", {"restart": {"limit": 9}}, [f"spec.restart: {AGAIN}"]),
        ("Succeeded", {"ttlAfterFinished": "1h", "cancelled": True}, []),
        ("Failed", {"suspend": True}, ["spec.suspend: the job has finished (Failed): create it again to run it again"]),
        ("Cancelled", {"roles": [{**ROLE, "replicas": 9}]},
         ["spec.roles: the job has finished (Cancelled): create it again to run it again"]),
    ],
)  # fmt: skip
def test_changes_of_a_job(phase: str, change: dict[str, Any], refused: list[str]) -> None:
    assert refusals(stored(phase), stored("Pending", **change)) == refused


def test_a_cancelled_job_stays_cancelled() -> None:
    assert refusals(stored(cancelled=True), stored()) == [
        "spec.cancelled: a cancelled job cannot be revived: create it again"
    ]


def test_other_kinds_may_change_and_a_deleted_object_may_not() -> None:
    before, after = admit(of_kind("Queue")), admit(of_kind("Queue", quota={"cpu": 4}))
    assert refusals(before, after) == []
    deleted = msgspec.structs.replace(
        before, metadata=msgspec.structs.replace(before.metadata, deleted=1.0)
    )
    assert refusals(deleted, after) == [
        "spec: the object is being deleted: its spec cannot be changed any more"
    ]
    assert refusals(deleted, before) == []
    assert refusals(before, stored()) == ["kind: wants Queue; found Job"]
