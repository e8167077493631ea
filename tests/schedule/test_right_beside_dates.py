"""A backlog that has dates keeps nobody out who has a better right to what it holds."""

from __future__ import annotations

import pytest

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.schedule.cycle.steps import Preempt
from shoal.simulate.cluster.world import World

_HOUR = 3600.0


def job(name: str, queue: str, gpus: int, created: float, **more: object) -> Job:
    """One task, for an hour."""
    return Job(  # pyright: ignore[reportCallIssue]
        name=name,
        queue=queue,
        created=created,
        wall_seconds=_HOUR,
        roles=(Role(minimum=1, maximum=1, gpus=gpus),),
        **more,  # pyright: ignore[reportArgumentType]
    )


def backlog(own: dict[str, float], *, mixed: bool, priority: int = 0) -> World:
    """Forty GPUs, all held by queue a, which has dates for all that it waits with; b has nothing."""
    nodes = tuple(Node(name=f"n{at}", gpus=4) for at in range(10))
    queues = tuple(Queue(name=name, nominal={"gpu": most}) for name, most in own.items())
    world = World(Cluster(nodes=nodes, queues=queues), Rules())
    for at in range(30):
        world.submit(job(f"a{at:02}", "a", 2 if mixed and at % 2 else 4, float(at), priority=priority))
    for now in (100.0, 101.0):
        world.decide(now)
    assert sum(each.promised is not None for each in world.jobs.values()) >= 10
    return world


def served(world: World, name: str, now: float) -> bool:
    """Whether others give way for it now."""
    plan = world.decide(now)
    given = [step for step in plan.steps if isinstance(step, Preempt)]
    assert all(step.beneficiary == name for step in given)
    return bool(given)


@pytest.mark.slow
@pytest.mark.parametrize("priority", [-3, 0, 3])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("own", [20.0, 0.0])
def test_a_queue_that_has_nothing_gets_its_part_now(own: float, mixed: bool, priority: int) -> None:
    """Its own, where it has any, and else as much as is fair; whatever dates the others were told."""
    world = backlog({"a": own, "b": own}, mixed=mixed, priority=priority)
    for number in range(4):
        now = 200.0 + number
        world.submit(job(f"b{number}", "b", 4, now, priority=priority))
        assert served(world, f"b{number}", now)
        for name in list(world.jobs):
            world.gone(name)
        world.decide(now + 0.5)
        assert world.jobs[f"b{number}"].tasks


@pytest.mark.parametrize("mixed", [False, True])
def test_beyond_its_part_it_waits_behind_them(mixed: bool) -> None:
    """A queue that has its own already overtakes nobody, and no date moves for it."""
    world = backlog({"a": 40.0, "b": 0.0}, mixed=mixed)
    before = {name: each.promised for name, each in world.jobs.items() if each.promised is not None}
    world.submit(job("b", "b", 4, 200.0))
    assert not served(world, "b", 200.0)
    after = {name: world.jobs[name].promised for name in before}
    assert after == before


@pytest.mark.parametrize("gpus", [4, 2])
def test_who_waits_for_one_node_keeps_nobody_from_the_others(gpus: int) -> None:
    """A job of a third queue has a date on a node that is held for an hour; b asks a for its own."""
    nodes = tuple(Node(name=f"n{at}", gpus=4, labels={"disk": str(at)}) for at in range(4))
    own = {"a": 0.0, "b": 8.0, "c": 8.0}
    queues = tuple(Queue(name=name, nominal={"gpu": most}) for name, most in own.items())
    world = World(Cluster(nodes=nodes, queues=queues), Rules())
    here = Role(minimum=1, maximum=1, gpus=4, selector={"disk": "0"})
    world.submit(Job(name="c0", queue="c", wall_seconds=_HOUR, roles=(here,), preemptible=False))
    world.decide(1.0)
    world.submit(Job(name="c1", queue="c", created=2.0, wall_seconds=_HOUR, roles=(here,)))
    for at in range(6):
        world.submit(job(f"a{at}", "a", 4 if at % 2 else gpus, 3.0))
    for now in (4.0, 5.0):
        world.decide(now)
    assert world.jobs["c1"].promised == pytest.approx(1.0 + _HOUR)
    world.submit(job("b", "b", 4, 10.0))
    assert served(world, "b", 10.0)
    assert world.jobs["c1"].promised == pytest.approx(1.0 + _HOUR)
