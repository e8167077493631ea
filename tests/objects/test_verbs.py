from __future__ import annotations

import msgspec
import pytest

from shoal.objects.elastic import with_coordinator
from shoal.objects.errors import Conflict, Invalid, NotFound
from shoal.objects.job import Job, JobSpec, JobStatus, Phase, Role
from shoal.objects.job_kind import cancelled, scaled, suspended
from shoal.objects.meta import Metadata
from shoal.objects.node import DRAIN, Node, NodeSpec, Taint, cordoned, declared_lost, drained


def job(*roles: Role, phase: Phase = "Running") -> Job:
    return Job(
        metadata=Metadata(name="train"),
        spec=JobSpec(roles=roles or (Role(replicas=4, min_replicas=2, command=("true",)),)),
        status=JobStatus(phase=phase),
    )


TWO = (Role(name="ps", command=("a",)), Role(name="worker", replicas=2, command=("b",)))
FINISHED: tuple[Phase, ...] = ("Succeeded", "Failed", "Cancelled")


def test_cancel_changes_nothing_else_and_nothing_that_is_over() -> None:
    assert cancelled(job()).spec == msgspec.structs.replace(job().spec, cancelled=True)
    for phase in FINISHED:
        assert cancelled(job(phase=phase)) == job(phase=phase)


def test_suspend_and_resume() -> None:
    held = suspended(job(), True)
    assert held.spec.suspend
    assert suspended(held, False) == job()
    with pytest.raises(Conflict, match="has succeeded and cannot be suspended"):
        suspended(job(phase="Succeeded"), True)
    with pytest.raises(Conflict, match="has failed and cannot be resumed"):
        suspended(job(phase="Failed"), False)


def test_scale_the_only_role() -> None:
    assert scaled(job(), 8).spec.roles[0].replicas == 8
    shrunk = scaled(job(), 1).spec.roles[0]
    assert (shrunk.replicas, shrunk.min_replicas) == (1, 1)
    both = scaled(job(), 8, min_replicas=3).spec.roles[0]
    assert (both.replicas, both.min_replicas) == (8, 3)


def test_scale_one_of_several_roles() -> None:
    ps, worker = scaled(job(*TWO), 5, role="worker").spec.roles
    assert (ps, worker.replicas) == (TWO[0], 5)
    with pytest.raises(Invalid, match="which one"):
        scaled(job(*TWO), 5)
    with pytest.raises(NotFound) as caught:
        scaled(job(*TWO), 5, role="wroker")
    assert caught.value.hint == "did you mean worker?"


def test_scale_refuses_what_makes_no_sense() -> None:
    with pytest.raises(Invalid, match="at least one task") as caught:
        scaled(job(), 0)
    assert "suspend" in caught.value.hint
    for phase in FINISHED:
        with pytest.raises(Conflict, match="cannot be scaled"):
            scaled(job(phase=phase), 2)


def test_cordon_drain_and_back() -> None:
    taint = Taint(key="gpu")
    node = Node(metadata=Metadata(name="n", namespace=""), spec=NodeSpec(taints=(taint,)))
    assert cordoned(node, True).spec == NodeSpec(taints=(taint,), unschedulable=True)
    moved = drained(node)
    assert moved.spec == NodeSpec(taints=(taint, DRAIN), unschedulable=True)
    assert drained(moved) == moved
    assert cordoned(moved, True) == moved  # cordoning does not end a drain
    assert cordoned(moved, False) == node


def test_lost_and_found() -> None:
    node = Node(metadata=Metadata(name="n", namespace=""))
    assert declared_lost(node).spec.lost
    assert declared_lost(declared_lost(node), False) == node


def test_the_platforms_own_role_is_not_scaled_and_not_in_the_way() -> None:
    roles = (Role(replicas=4, min_replicas=2, command=("python", "x.py")),)
    made = msgspec.structs.replace(
        job(), spec=with_coordinator(JobSpec(roles=roles, runtime="elastic"), "python")
    )
    worker, coordinator = scaled(made, 6).spec.roles
    assert (worker.replicas, worker.min_replicas, coordinator.replicas) == (6, 2, 1)
    with pytest.raises(Invalid, match="the platform's"):
        scaled(made, 2, role="coordinator")
