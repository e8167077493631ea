"""A job that is nearly out of time is not helped to its minimum any more, and breaks no plan."""

from __future__ import annotations

import pytest

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.steps import Shrink
from shoal.simulate.cluster.world import World

_WALL = 600.0


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("now", [100.0, _WALL - 10.0])
def test_its_own_surplus_makes_room_for_what_it_lost_while_there_is_time(
    now: float, ready: bool
) -> None:
    """Its server was lost, and a worker of its own stands where another could, if its node answers."""
    job = Job(
        name="j",
        wall_seconds=_WALL,
        roles=(Role(name="server", gpus=1), Role(minimum=1, maximum=2, gpus=1)),
        tasks=(Task(node="a", gpus=(0,)), Task(index=1, node="a", gpus=(1,))),
        below_since=now,
    )
    node = Node(name="a", gpus=2, ready=ready)
    world = World(Cluster(nodes=(node,), queues=(Queue(name="default"),), jobs=(job,)), Rules())
    plan = world.decide(now)
    gives = any(isinstance(step, Shrink) and step.beneficiary == "j" for step in plan.steps)
    assert gives is (ready and now < _WALL / 2)
    assert len(world.jobs["j"].present) == 2 - gives
