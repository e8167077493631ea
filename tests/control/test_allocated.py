"""What jobs have had, and the policy that goes by it."""

from __future__ import annotations

import pytest

from shoal.cluster.simulated import run_for
from shoal.control.queue_usage import attained_service, service_rate
from shoal.objects.elastic import with_coordinator
from shoal.objects.job import Allocation, Job, JobSpec, JobStatus, Resources, Role, Slots
from shoal.objects.meta import Metadata
from tests.control.world import World, capacity, role

DEMOTED = 57_600.0
"""GPU seconds."""


def holding(*slots: tuple[str, str], roles: tuple[Role, ...], **spec: object) -> Job:
    made = with_coordinator(JobSpec(roles=roles, **spec), "python")  # type: ignore[arg-type]
    held = tuple(Slots(role=name, indices=indices, node="n") for name, indices in slots)
    allocation = Allocation(id=3, slots=held, changed=100.0, since=50.0, served=7.0)
    return Job(metadata=Metadata(name="j"), spec=made, status=JobStatus(allocation=allocation))


def test_gpus_count_and_parts_of_one_and_not_the_tasks_beside_them() -> None:
    train = Role(name="train", replicas=4, resources=Resources(gpu=2))
    part = Role(name="eval", replicas=2, resources=Resources(gpu_share=0.25))
    job = holding(
        ("train", "0-2"), ("eval", "0-1"), ("load", "0-7"), roles=(train, part, Role(name="load"))
    )
    assert service_rate(job) == pytest.approx(6.5)
    assert attained_service(job, 110.0) == pytest.approx(72.0)
    assert attained_service(job, 90.0) == 7.0, "the clock was set back"


def test_tasks_count_where_nobody_asks_for_a_gpu_and_the_coordinator_does_not() -> None:
    worker = Role(replicas=4, min_replicas=1, command=("python", "x.py"))
    job = holding(("worker", "0-2"), ("coordinator", "0"), roles=(worker,), runtime="elastic")
    assert service_rate(job) == 3.0


def test_what_was_had_is_kept_over_changes_and_while_nothing_is_held() -> None:
    world = World({"a": capacity(8)}, run_for(None))
    world.submit("j", role(2, min_replicas=1))
    world.run(1)
    begun = world.job("j").status.allocation
    assert begun.served == 0.0
    world.clock.advance(100)
    world.edit("j", roles=(role(4, min_replicas=1),))
    world.run(1)
    grown = world.job("j").status.allocation
    assert grown.served == pytest.approx(2 * (grown.changed - begun.changed))
    world.clock.advance(50)
    world.edit("j", suspend=True)
    world.run(5)
    gone = world.job("j").status.allocation
    assert gone.slots == ()
    assert gone.served == pytest.approx(grown.served + 4 * (gone.changed - grown.changed))
    world.clock.advance(1000)
    world.edit("j", suspend=False)
    world.run(5)
    assert world.job("j").status.allocation.served == pytest.approx(gone.served)


def fair_start(seconds: float) -> World:
    """One job has had four GPUs for so long when another asks for all four."""
    world = World({"a": capacity(8, gpus=4)}, run_for(None), policy="tiresias")
    world.submit("old", role(4, gpu=1))
    world.run(1)
    world.clock.advance(seconds)
    world.submit("fresh", role(4, gpu=1))
    world.run(40)
    return world


def test_who_has_had_its_service_steps_behind_who_has_not() -> None:
    world = fair_start(DEMOTED / 4 + 1)
    assert len(world.running("fresh")) == 4
    assert world.slots("old") == {}


def test_who_has_had_less_goes_on_until_then() -> None:
    world = fair_start(DEMOTED / 4 - 200)
    assert world.slots("fresh") == {}
    assert len(world.running("old")) == 4
    world.clock.advance(200)
    world.run(40)
    assert len(world.running("fresh")) == 4
