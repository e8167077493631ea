"""A planner that remembers decides as one that sees everything for the first time."""

from __future__ import annotations

import msgspec
import pytest

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.planner import Planner, plan
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.steps import Plan, Start
from tests.simulate.cluster.chance import Chance, Kinds


def compared(chance: Chance) -> Chance:
    """Each of its decisions is made twice, and has to be the same byte for byte."""
    planner = Planner(chance.world.rules)

    def plans(cluster: Cluster, rules: Rules, now: Stamp) -> Plan:
        remembered = planner.plan(cluster, now)
        fresh = msgspec.json.encode(plan(cluster, rules, now))
        assert msgspec.json.encode(remembered) == fresh
        return remembered

    chance.world.plans = plans
    return chance


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_what_is_remembered_changes_no_plan(seed: int) -> None:
    """Jobs come, end, change size and are lost with their nodes."""
    chance = compared(Chance(seed, Kinds(nodes=6 + seed, waiting=12 + seed)))
    print(f"seed {seed}")
    for at in range(120):
        chance.event()
        if at % 25 == 24:
            chance.settle()


@pytest.mark.slow
def test_a_few_events_change_no_plan() -> None:
    """The same, in short."""
    chance = compared(Chance(99))
    for _ in range(25):
        chance.event()


@pytest.mark.parametrize("cores", [0, 3])
def test_equal_jobs_start_at_once_where_they_would_start_one_by_one(cores: int) -> None:
    """Jobs of different users are looked at one by one, and go where equal ones go: up to the limit of
    their queue, round others that are not like them, as far as there is room."""

    def cluster(users: int) -> Cluster:
        one = Role(gpus=1, amounts={"cpu": cores})
        jobs = [
            Job(
                name=f"job-{at:02d}",
                created=float(at),
                queue="narrow" if at % 9 < 3 else "wide",
                user=f"user-{at % users}",
                roles=(one if at % 11 else Role(minimum=2, maximum=2, gpus=1),),
            )
            for at in range(60)
        ]
        there = Job(name="there", queue="wide", roles=(one,), tasks=(Task(node="b", gpus=(2,)),))
        return Cluster(
            nodes=tuple(Node(name=name, gpus=8, amounts={"cpu": 20}) for name in "abcdef"),
            queues=(Queue(name="narrow", limit={"gpu": 11}), Queue(name="wide")),
            jobs=(*jobs, there),
        )

    together, alone = plan(cluster(1), Rules(), 60.0), plan(cluster(60), Rules(), 60.0)
    assert sum(isinstance(step, Start) for step in together.steps) > 30
    assert msgspec.json.encode(together) == msgspec.json.encode(alone)


def test_rows_that_contradict_each_other_are_forgotten() -> None:
    """The next decision is as if the wrong rows had never been there."""
    job = Job(name="a", queue="q", roles=(Role(gpus=1),))
    right = Cluster(nodes=(Node(name="n", gpus=1),), queues=(Queue(name="q"),), jobs=(job,))
    wrong = msgspec.structs.replace(right, jobs=(job, Job(name="b", queue="none")))
    planner = Planner(Rules())
    for cluster in (right, wrong, right):
        if cluster is wrong:
            with pytest.raises(ValueError, match="no queue none"):
                planner.plan(cluster, 0.0)
        else:
            assert [type(step) for step in planner.plan(cluster, 0.0).steps] == [Start]


def test_new_resources_and_selectors_are_seen() -> None:
    """A job that asks for what nobody asked for before finds it."""
    node = Node(name="n", amounts={"disk": 2}, labels={"zone": "x"})
    first = Job(name="a", queue="q", roles=(Role(amounts={"disk": 1}),))
    second = Job(name="b", queue="q", roles=(Role(amounts={"tape": 1}),))
    third = Job(name="c", queue="q", roles=(Role(amounts={"disk": 1}, selector={"zone": "x"}),))
    planner = Planner(Rules())
    for jobs in ((first,), (first, second), (first, second, third)):
        cluster = Cluster(nodes=(node,), queues=(Queue(name="q"),), jobs=jobs)
        found = planner.plan(cluster, 0.0)
        assert msgspec.json.encode(found) == msgspec.json.encode(plan(cluster, Rules(), 0.0))
