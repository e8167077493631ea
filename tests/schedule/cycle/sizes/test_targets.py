"""Targets, and exchanges that come of them, on clusters drawn at random."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from shoal.schedule.cycle.invariants import broken
from shoal.schedule.cycle.planner import plan
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.schedule.cycle.steps import Grow, Reserve, Shrink, Start
from shoal.simulate.cluster.world import World

RULES = Rules(horizon_seconds=100.0)


def drawn(draw: Random, number: int, now: float) -> Job:
    """Mostly a job with a curve; now and then one without, rigid or elastic."""
    least = draw.choice([1, 1, 2, 3])
    most = least + draw.choice([0, 1, 3, 6])
    power, kind = draw.uniform(0.2, 1.0), draw.random()
    role = Role(minimum=least, maximum=most, gpus=draw.choice([1, 1, 1, 2]))
    roles = (role, Role(name="ps", amounts={"cpu": 1})) if draw.random() < 0.3 else (role,)
    return Job(
        name=f"j{number:02d}",
        queue=draw.choice(["a", "b"]),
        priority=draw.choice([0, 0, 0, 5]),
        created=now,
        roles=roles,
        speeds=tuple((at + 1) ** power for at in range(most)) if kind < 0.8 else (),
        work=draw.uniform(20, 900) if kind < 0.6 else None,
        done=draw.choice([0.0, 10.0, 2000.0]),
        restart_seconds=draw.choice([0.0, 2.0, 20.0]),
    )


def world(draw: Random) -> World:
    nodes = tuple(Node(name=f"n{at}", gpus=4, amounts={"cpu": 8}) for at in range(3))
    limit = {"gpu": float(draw.randint(6, 12))} if draw.random() < 0.5 else {}
    queues = (Queue(name="a", nominal={"gpu": 6.0}), Queue(name="b", limit=limit))
    return World(Cluster(nodes=nodes, queues=queues), RULES)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.slow
def test_plans_can_be_carried_out_and_come_to_rest(seed: int) -> None:
    """Jobs come and end; after each a plan is made, and made again until nothing is resized any more, as
    often as there are changes that wait for others to be gone. What has its target keeps it. `World`
    refuses what breaks a rule."""
    draw = Random(seed)
    there = world(draw)
    now = 0.0
    for number in range(12):
        now += draw.uniform(1, 30)
        there.submit(drawn(draw, number, now))
        if number > 3 and draw.random() < 0.5:
            there.finish(draw.choice(sorted(there.jobs)), now)
        for _ in range(8):
            remembered = msgspec.json.encode(there.plan(now))
            assert remembered == msgspec.json.encode(plan(there.cluster, RULES, now))
            rows = there.cluster
            made = there.decide(now)
            assert broken(rows, made, now + RULES.notice_seconds) == []
            again = plan(there.cluster, RULES, now)
            loud = [
                step.job
                for step in again.steps
                if step.code == "Resized" or (isinstance(step, Grow) and there.jobs[step.job].speeds)
            ]
            leaving = any(task.stopping for job in there.jobs.values() for task in job.tasks)
            if made.again_at is None or made.again_at > now + 2:
                assert not loud, (seed, number, loud)
            for job in list(there.jobs):
                there.gone(job)
            if not leaving and not loud:
                break
            now += 1
        else:
            pytest.fail(f"seed {seed}: restless after job {number}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_nobody_gives_without_a_beneficiary_or_below_its_minimum(seed: int) -> None:
    draw = Random(100 + seed)
    there = world(draw)
    shrinks = 0
    for number in range(12):
        now = 10.0 * number
        there.submit(drawn(draw, number, now))
        made = there.plan(now)
        assert broken(there.cluster, made, now + RULES.notice_seconds) == []
        kept = {step.job for step in made.steps if isinstance(step, Reserve) and step.tasks}
        for step in made.steps:
            if isinstance(step, Shrink) and step.code == "Resized":
                shrinks += 1
                assert step.beneficiary in kept
                giver, taker = there.jobs[step.job], there.jobs[step.beneficiary]
                assert giver.priority <= taker.priority
                assert giver.queue == taker.queue
                left = [task for task in giver.present if task not in step.tasks]
                workers = sum(task.role == "worker" for task in left)
                assert workers >= giver.roles[0].minimum
        there.apply(made, now)
        for job in list(there.jobs):
            there.gone(job)
    print(f"seed {seed}: {shrinks} shrinks")


def test_jobs_without_curves_are_served_as_ever() -> None:
    """The same plan, whatever else rules say of sizes."""
    draw = Random(3)
    there = world(draw)
    for number in range(10):
        there.submit(msgspec.structs.replace(drawn(draw, number, float(number)), speeds=(), work=None))
        made = there.decide(float(number))
        assert not [step for step in made.steps if step.code == "Resized"]


def test_wide_tasks_count_for_what_they_are() -> None:
    """Two equal jobs, one in tasks of two GPUs: they share the GPUs, not the tasks."""
    node = Node(name="n", gpus=8)
    curve = (1.0, 1.8, 2.4, 2.9, 3.3, 3.6, 3.8, 3.9)
    narrow = Job(name="narrow", roles=(Role(minimum=1, maximum=8, gpus=1),), speeds=curve, work=500.0)
    wide = Job(name="wide", roles=(Role(minimum=1, maximum=4, gpus=2),), speeds=curve[1::2], work=500.0)
    there = World(Cluster(nodes=(node,), queues=(Queue(name="default"),)), RULES)
    for job in (narrow, wide):
        there.submit(job)
    made = there.decide(0.0)
    assert {type(step) for step in made.steps} <= {Start, Grow}
    narrows, wides = (len(there.jobs[name].present) for name in ("narrow", "wide"))
    assert narrows + 2 * wides == 8
    assert 2 <= 2 * wides <= 4


@pytest.mark.slow
def test_many_jobs_come_to_rest_too() -> None:
    """So many that a price decides: after a few plans nobody is resized any more."""
    draw = Random(5)
    nodes = tuple(Node(name=f"n{at:03d}", gpus=8) for at in range(60))
    there = World(Cluster(nodes=nodes, queues=(Queue(name="default"),)), RULES)

    def come(first: int, last: int, now: float) -> None:
        for number in range(first, last):
            power = draw.uniform(0.4, 0.95)
            there.submit(
                Job(
                    name=f"j{number:02d}",
                    created=now,
                    roles=(Role(minimum=draw.choice([1, 2]), maximum=40, gpus=1),),
                    speeds=tuple((at + 1) ** power for at in range(40)),
                    work=draw.lognormvariate(8, 1.5),
                    restart_seconds=5.0,
                )
            )

    come(0, 60, 0.0)
    resized: list[int] = []
    for second in range(12):
        if second == 2:
            come(60, 90, 2.0)
        made = there.decide(float(second))
        resized.append(sum(step.code == "Resized" for step in made.steps))
        for name in list(there.jobs):
            there.gone(name)
    print(resized)
    assert sum(resized[2:]) > 20
    assert resized[-3:] == [0, 0, 0]
    assert there.held.used("gpu") == 480_000
