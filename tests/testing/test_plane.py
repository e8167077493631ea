"""The control plane in virtual time: scheduler and controllers together."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import shoal
from shoal.cluster.simulated import Script, run_for
from shoal.objects.job import ArraySpec, Gang, Job, JobSpec, Resources, Restart, Role, Runtime
from shoal.objects.kinds import KINDS
from shoal.objects.meta import Metadata
from shoal.objects.node import Taint
from shoal.objects.quantities import CpuMillis, Seconds
from shoal.objects.task import TaskSpec
from shoal.store.base import SYSTEM
from shoal.testing.plane import Plane, capacity


def job(
    name: str,
    replicas: int = 1,
    *,
    cpu: int = 1000,
    runtime: Runtime = "torchrun",
    minimum: int | None = None,
    **spec: object,
) -> Job:
    role = Role(
        replicas=replicas,
        min_replicas=minimum,
        command=("x",),
        resources=Resources(cpu=CpuMillis(cpu)),
    )
    made = JobSpec(roles=(role,), runtime=runtime, **spec)  # pyright: ignore[reportArgumentType]
    return Job(metadata=Metadata(name=name), spec=made)


def test_a_gang_runs_to_its_end_over_two_nodes():
    plane = Plane({"n0": capacity(2), "n1": capacity(2)}, run_for(5))
    plane.submit(job("a", 4))
    plane.advance(1)
    assert plane.job("a").status.phase == "Running"
    assert {t.spec.placement.node for t in plane.tasks("a").values()} == {"n0", "n1"}
    plane.advance(6)
    status = plane.job("a").status
    assert status.phase == "Succeeded"
    assert not status.allocation.slots


def test_a_gang_that_does_not_fit_waits_whole_and_says_why():
    plane = Plane({"n0": capacity(2)}, run_for(5))
    plane.submit(job("first", 2))
    plane.submit(job("second", 2))
    plane.advance(1)
    waiting = plane.job("second").status
    assert waiting.phase == "Pending"
    assert waiting.scheduling.code == "NoRoom"
    plane.advance(12)
    assert plane.job("second").status.phase == "Succeeded"
    assert plane.job("second").status.scheduling.code == ""


def test_priority_goes_first():
    plane = Plane({"n0": capacity(1)}, run_for(1))
    plane.submit(job("low", priority="experiment"))
    plane.submit(job("high", priority="production"))
    plane.advance(0.1)
    assert [*plane.tasks("high")]
    assert not plane.tasks("low")


def test_an_array_runs_through_a_narrow_node():
    plane = Plane({"n0": capacity(3)}, run_for(1))
    spec = JobSpec(roles=(Role(command=("x",)),), array=ArraySpec(indices="0-19", parallelism=2))
    plane.submit(Job(metadata=Metadata(name="many"), spec=spec))
    plane.advance(0.5)
    assert len(plane.tasks("many")) == 2
    plane.advance(12)
    status = plane.job("many").status
    assert status.phase == "Succeeded"
    assert status.roles[0].outcomes == "0-19=Succeeded"


def test_a_drained_nodes_job_moves():
    plane = Plane({"n0": capacity(2), "n1": capacity(2)}, run_for(None))
    plane.submit(job("a", 2))
    plane.advance(1)
    (node,) = {t.spec.placement.node for t in plane.tasks("a").values()}
    drain = Taint(key="shoal.dev/drain", effect="NoExecute")
    plane.edit_node(node, unschedulable=True, taints=(drain,))
    plane.advance(2)
    status = plane.job("a").status
    assert (status.phase, status.failures, status.attempt) == ("Running", 0, 2)
    assert {t.spec.placement.node for t in plane.tasks("a").values()} != {node}


def test_a_silent_node_changes_nothing_until_it_is_declared_lost():
    plane = Plane({"n0": capacity(2), "n1": capacity(2)}, run_for(None))
    plane.submit(job("a", 2))
    plane.advance(1)
    (node,) = {t.spec.placement.node for t in plane.tasks("a").values()}
    plane.cluster.silence(node)
    plane.advance(60)
    assert plane.job("a").status.reason == "WaitingForNode"
    assert not plane.tasks("a")
    plane.edit_node(node, lost=True)
    plane.advance(5)
    status = plane.job("a").status
    assert (status.phase, status.failures, status.infrastructure_failures) == ("Running", 0, 1)
    assert {t.spec.placement.node for t in plane.tasks("a").values()} == {"n0", "n1"} - {node}


def test_scaling_a_fixed_gang_is_a_new_attempt_and_an_elastic_one_is_not():
    for runtime, attempts in (("torchrun", 2), ("elastic", 1)):
        plane = Plane({"n0": capacity(8)}, run_for(None))
        plane.submit(job("a", 2, runtime=runtime, minimum=1 if runtime == "elastic" else None))
        plane.advance(1)
        role = plane.job("a").spec.roles[0]
        plane.edit("a", roles=(Role(**{**_fields(role), "replicas": 4}),))
        plane.advance(2)
        assert len(plane.tasks("a")) == 4, runtime
        assert plane.job("a").status.attempt == attempts
        plane.edit("a", roles=(Role(**{**_fields(role), "replicas": 1}),))
        plane.advance(2)
        assert sorted(plane.tasks("a")) == [("worker", 0)]


def test_an_elastic_job_starts_with_what_fits():
    plane = Plane({"n0": capacity(3)}, run_for(None))
    plane.submit(job("a", 5, runtime="elastic", minimum=2))
    plane.advance(1)
    assert len(plane.tasks("a")) == 3
    assert plane.job("a").status.phase == "Running"


def test_a_gang_minimum_lets_fewer_start():
    plane = Plane({"n0": capacity(3)}, run_for(None))
    plane.submit(job("a", 5, runtime="plain", gang=Gang(min=3)))
    plane.advance(1)
    assert len(plane.tasks("a")) == 3


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 9))]
)
@pytest.mark.slow
def test_a_busy_cluster_of_failing_jobs_settles(seed: int):
    def behave(spec: TaskSpec) -> Script:
        fails = (spec.index + spec.incarnation + len(spec.job)) % 3 == 0
        return Script(run_seconds=1 + spec.index % 3, exit_code=1 if fails else 0)

    plane = Plane({"n0": capacity(4), "n1": capacity(3)}, behave, seed)
    for number in range(20):
        restart = Restart(limit=5, backoff=Seconds(0.5))
        plane.submit(job(f"j{number}" + "x" * (number % 4), 1 + number % 4, restart=restart))
    plane.advance(300)
    for record in plane.store.list(KINDS["Job"], actor=SYSTEM).records:
        assert record.object.status.phase in ("Succeeded", "Failed"), record.object.status
    assert not plane.cluster.list().tasks


def _fields(role: Role) -> dict[str, object]:
    return {name: getattr(role, name) for name in role.__struct_fields__}


@pytest.mark.slow
def test_a_single_task_job_enters_few_modules():
    root = str(Path(shoal.__file__).parent) + "/"
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(root):
            entered.add(code.co_filename.removeprefix(root))

    plane = Plane({"n0": capacity(2)}, run_for(5))
    sys.setprofile(note)
    try:
        plane.submit(job("a"))
        plane.until(lambda: plane.job("a").status.phase == "Succeeded")
    finally:
        sys.setprofile(None)
    others = sorted(each for each in entered if not each.startswith("schedule/"))
    assert "control/job/controller.py" in others
    assert len(others) <= 46, others
