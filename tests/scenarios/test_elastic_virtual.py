"""Elastic jobs under the whole control plane, in virtual time: grow, give way, come back, be killed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.cluster.simulated import Script
from shoal.objects.elastic import with_coordinator
from shoal.objects.job import Job, JobSpec, Resources, Restart, Role
from shoal.objects.meta import Metadata
from shoal.objects.quantities import CpuMillis
from shoal.objects.ranges import IndexSet
from shoal.objects.task import TaskSpec
from shoal.testing.plane import Plane, capacity

NOTICE = 3.0
"""Seconds that a worker takes to leave after its notice."""


def worker(least: int, most: int, cpu: float = 1) -> Role:
    resources = Resources(cpu=CpuMillis(int(cpu * 1000)))
    return Role(replicas=most, min_replicas=least, command=("python", "x.py"), resources=resources)


def elastic(name: str = "train", least: int = 1, most: int = 4, **spec: Any) -> Job:
    spec.setdefault("priority", "experiment")
    made = JobSpec(roles=(worker(least, most),), runtime="elastic", **spec)
    return Job(metadata=Metadata(name=name), spec=with_coordinator(made, "python"))


def plain(name: str, tasks: int = 1, cpu: float = 1, **spec: Any) -> Job:
    role = Role(replicas=tasks, command=("x",), resources=Resources(cpu=CpuMillis(int(cpu * 1000))))
    return Job(metadata=Metadata(name=name), spec=JobSpec(roles=(role,), **spec))


def behave(ends: dict[str, Script] | None = None):
    def script(task: TaskSpec) -> Script:
        known = (ends or {}).get(f"{task.job}/{task.role}-{task.index}-{task.incarnation}")
        return known or Script(stops_after_seconds=NOTICE if task.job == "train" else 0.0)

    return script


def workers(plane: Plane, job: str = "train") -> list[int]:
    return sorted(index for role, index in plane.tasks(job) if role == "worker")


def slots(plane: Plane, role: str = "worker") -> list[int]:
    allocation = plane.job("train").status.allocation
    return sorted(i for s in allocation.slots if s.role == role for i in IndexSet.parse(s.indices))


@pytest.mark.slow
def test_two_grow_to_four_give_two_and_get_them_back():
    plane = Plane({"n0": capacity(4.1)}, behave())
    plane.submit(elastic(most=2))
    plane.advance(1)
    assert workers(plane) == [0, 1]
    scale(plane, most=4)
    plane.advance(0.1)
    assert workers(plane) == [0, 1, 2, 3], "growing does not wait"

    plane.submit(plain("prod", 2, priority="production"))
    plane.advance(0.5)
    assert slots(plane) == [0, 1]
    assert workers(plane) == [0, 1, 2, 3], "they have notice"
    held = plane.job("prod").status.scheduling
    assert held.code == "Preempting"
    assert held.message == "it gets the place of default/train"
    assert [s.indices for s in held.reserved] == ["0-1"]
    plane.advance(NOTICE + 0.5)
    assert workers(plane) == [0, 1]
    prod = plane.job("prod").status
    assert (prod.phase, prod.scheduling.code, prod.scheduling.reserved) == ("Running", "", ())

    plane.edit("prod", cancelled=True)
    plane.advance(1)
    assert workers(plane) == [0, 1, 2, 3]
    status = plane.job("train").status
    assert (status.failures, status.infrastructure_failures, status.attempt) == (0, 0, 1)
    assert ("worker", 3) in plane.tasks("train")
    assert plane.tasks("train")["worker", 3].spec.incarnation == 2
    assert plane.tasks("train")["worker", 0].spec.incarnation == 1
    reasons = [reason for job, reason, _ in plane.notes if job == "train"]
    assert reasons.count("Preempted") == 2, "the decision and what was done"


def test_capacity_is_used_only_when_it_is_confirmed_gone():
    plane = Plane({"n0": capacity(4.1)}, behave())
    plane.submit(elastic())
    plane.advance(1)
    plane.submit(plain("prod", 1, 3, priority="production"))
    for _ in range(60):
        plane.advance(0.1)
        running = sum(
            int(t.spec.cpu) for t in (*plane.tasks("train").values(), *plane.tasks("prod").values())
        )
        assert running <= 4100
    assert plane.job("prod").status.phase == "Running"
    assert workers(plane) == [0]


def test_the_minimum_stays_whatever_is_asked():
    plane = Plane({"n0": capacity(4.1)}, behave())
    plane.submit(elastic(least=2))
    plane.advance(1)
    plane.submit(plain("big", 1, 3, priority="experiment"))
    plane.advance(30)
    assert workers(plane) == [0, 1, 2, 3], "nobody gives way for a job that would not fit then"
    assert plane.job("big").status.scheduling.code == "NoRoom"
    plane.submit(plain("small", 2, 1, priority="experiment"))
    plane.advance(30)
    assert workers(plane) == [0, 1]
    assert plane.job("small").status.phase == "Running"
    assert [*plane.tasks("train")].count(("coordinator", 0)) == 1


def test_one_node_is_lost_and_costs_no_budget():
    plane = Plane({"n0": capacity(2.1), "n1": capacity(2.1)}, behave())
    plane.submit(elastic(restart=Restart(limit=0)))
    plane.advance(1)
    assert workers(plane) == [0, 1, 2, 3]
    place = plane.tasks("train")["coordinator", 0].spec.placement.node
    other = {"n0": "n1", "n1": "n0"}[place]
    plane.cluster.silence(other)
    plane.edit_node(other, lost=True)
    plane.advance(5)
    status = plane.job("train").status
    assert (status.phase, status.failures, status.infrastructure_failures) == ("Running", 0, 1)
    assert len(workers(plane)) == 2


def test_the_coordinators_node_is_lost_and_a_worker_makes_room_for_the_next():
    plane = Plane({"n0": capacity(4), "n1": capacity(0.1)}, behave())
    plane.submit(elastic(restart=Restart(limit=0)))
    plane.advance(1)
    assert plane.tasks("train")["coordinator", 0].spec.placement.node == "n1"
    plane.cluster.silence("n1")
    plane.edit_node("n1", lost=True)
    plane.advance(NOTICE + 5)
    coordinator = plane.tasks("train")["coordinator", 0].spec
    assert (coordinator.placement.node, coordinator.incarnation) == ("n0", 2)
    assert workers(plane) == [0, 1, 2]
    assert plane.job("train").status.failures == 0


def test_killed_workers_come_back_alone_and_are_counted_exactly():
    ends = {
        "train/worker-1-1": Script(5, exit_code=137),
        "train/worker-1-2": Script(5, exit_code=137),
        "train/worker-2-1": Script(5.5, exit_code=137),
    }
    plane = Plane({"n0": capacity(4.1)}, behave(ends))
    plane.submit(elastic(restart=Restart(limit=5)))
    plane.advance(60)
    assert workers(plane) == [0, 1, 2, 3]
    status = plane.job("train").status
    assert (status.phase, status.failures, status.infrastructure_failures) == ("Running", 3, 0)
    incarnations = {key: task.spec.incarnation for key, task in plane.tasks("train").items()}
    assert incarnations == {
        ("coordinator", 0): 1, ("worker", 0): 1, ("worker", 1): 3, ("worker", 2): 2, ("worker", 3): 1,
    }  # fmt: skip


def scale(plane: Plane, *, least: int | None = None, most: int | None = None) -> None:
    """`shoal scale job/train`."""
    from shoal.objects.job_kind import scaled

    job = plane.job("train")
    made = scaled(job, most or job.spec.roles[0].replicas, min_replicas=least)
    plane.edit("train", roles=made.spec.roles)


def test_scaled_down_the_highest_go_with_notice():
    plane = Plane({"n0": capacity(8)}, behave())
    plane.submit(elastic(most=6))
    plane.advance(1)
    assert len(workers(plane)) == 6
    scale(plane, most=2)
    plane.advance(0.5)
    assert slots(plane) == [0, 1]
    stopping = {
        key: t.stop_reason for key, t in plane.tasks("train").items() if t.phase == "Terminating"
    }
    assert stopping == {("worker", index): "Shrunk" for index in range(2, 6)}
    plane.advance(NOTICE + 1)
    assert workers(plane) == [0, 1]
    scale(plane, most=5)
    plane.advance(1)
    assert workers(plane) == [0, 1, 2, 3, 4]
    assert plane.job("train").status.failures == 0


def test_a_new_minimum_is_kept_from_then_on():
    plane = Plane({"n0": capacity(4.1)}, behave())
    plane.submit(elastic())
    plane.advance(1)
    scale(plane, least=3)
    plane.submit(plain("prod", 2, priority="experiment"))
    plane.advance(20)
    assert workers(plane) == [0, 1, 2, 3]
    scale(plane, least=2)
    plane.advance(20)
    assert workers(plane) == [0, 1]


@pytest.mark.parametrize("restart", [False, True])
def test_suspend_and_resume(restart: bool):
    plane = Plane({"n0": capacity(4.1)}, behave())
    plane.submit(elastic())
    plane.advance(1)
    plane.edit("train", suspend=True)
    plane.advance(1)
    if restart:
        plane.restart()
    plane.advance(2 * NOTICE + 1)  # the coordinator goes last
    assert (plane.job("train").status.phase, plane.tasks("train")) == ("Suspended", {})
    plane.edit("train", suspend=False)
    plane.advance(1)
    assert workers(plane) == [0, 1, 2, 3]
    status = plane.job("train").status
    assert (status.attempt, status.failures, status.infrastructure_failures) == (2, 0, 0)


def test_cancelled_all_of_it_goes():
    plane = Plane({"n0": capacity(4.1)}, behave())
    plane.submit(elastic())
    plane.advance(1)
    plane.edit("train", cancelled=True)
    plane.advance(2 * NOTICE + 1)  # the coordinator goes last
    assert (plane.job("train").status.phase, plane.tasks("train")) == ("Cancelled", {})


def test_it_ends_with_its_workers():
    ends = {f"train/worker-{index}-1": Script(10) for index in range(4)}
    plane = Plane({"n0": capacity(4.1)}, behave(ends))
    plane.submit(elastic())
    plane.advance(15)
    status = plane.job("train").status
    assert (status.phase, plane.tasks("train")) == ("Succeeded", {})
    assert not status.allocation.slots


@pytest.mark.slow
def test_a_new_server_at_any_moment_changes_nothing():
    plane = Plane({"n0": capacity(4.1)}, behave(), seed=5)
    plane.submit(elastic())
    plane.advance(1)
    plane.submit(plain("prod", 2, priority="production"))
    for _ in range(12):
        plane.advance(0.4)
        plane.restart()
    plane.advance(2)
    assert plane.job("prod").status.phase == "Running"
    assert workers(plane) == [0, 1]
    assert plane.job("train").status.failures == 0


def test_a_job_without_a_coordinator_is_run_as_it_is():
    """One that was stored before there were any."""
    plane = Plane({"n0": capacity(4)}, behave())
    made = JobSpec(roles=(worker(1, 4),), runtime="elastic")
    plane.submit(Job(metadata=Metadata(name="train"), spec=made))
    plane.advance(1)
    assert workers(plane) == [0, 1, 2, 3]
    assert msgspec.structs.asdict(plane.job("train").spec)["runtime"] == "elastic"
