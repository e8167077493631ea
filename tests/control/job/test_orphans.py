"""Tasks whose job was deleted while their node did not answer."""

from __future__ import annotations

import pytest

from shoal.cluster.base import Task
from shoal.objects.errors import NotFound
from shoal.objects.kinds import JOB
from shoal.store.base import SYSTEM
from tests.control.world import World, capacity, role


def tasks(world: World) -> list[Task]:
    return list(world.cluster.list().tasks)


def deleted_while_silent(world: World) -> None:
    world.run(0.5)
    world.submit("early", role(1), runtime="torchrun")
    world.run(0.5)
    assert [task.phase for task in tasks(world)] == ["Running"]
    world.cluster.silence("a")
    world.edit_node("a", lost=True)
    world.run(0.5)
    world.store.delete(JOB, "default", "early", actor=SYSTEM)
    world.run(1.0)
    with pytest.raises(NotFound):
        world.job("early")


@pytest.mark.parametrize("restarted", [False, True])
def test_they_are_ended_when_the_node_answers_again(restarted: bool):
    world = World({"a": capacity()})
    deleted_while_silent(world)
    if restarted:
        world.boot()
        world.run(0.5)
    world.cluster.silence("a", False)
    world.run(2.0)
    assert tasks(world) == []
    assert world.runner.failures() == ()


def test_a_new_job_of_the_same_name_keeps_its_own():
    world = World({"a": capacity(), "b": capacity()})
    deleted_while_silent(world)
    world.submit("early", role(1))
    world.run(0.5)
    world.cluster.silence("a", False)
    world.run(2.0)
    (left,) = tasks(world)
    assert left.spec.job_uid == world.job("early").metadata.uid
    assert left.phase == "Running"
