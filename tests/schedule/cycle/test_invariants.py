"""What has to hold of every plan does, for clusters of all kinds; and what says so can tell a bad
one."""

from __future__ import annotations

import os

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from shoal.schedule.cycle.invariants import broken
from shoal.schedule.cycle.planner import plan
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.steps import Deny, Grow, Move, Plan, Preempt, Reserve, Shrink, Start, Step
from shoal.simulate.cluster.world import World
from tests.schedule.cycle.strategies import situations

RANDOM = "SHOAL_RANDOM_EXAMPLES"
"""Set: other examples each time. Else the same: what is found is to be looked for, not met by chance."""

slowly = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=RANDOM not in os.environ,
)


@settings(slowly, max_examples=30)
@given(situations())
@pytest.mark.slow
def test_nothing_is_broken(situation: tuple[Cluster, Rules, float]) -> None:
    cluster, rules, now = situation
    made = plan(cluster, rules, now)
    assert broken(cluster, made, now + rules.notice_seconds) == []
    World(cluster, rules).apply(made, now)


@pytest.mark.soak
@settings(slowly, max_examples=400)
@given(situations())
def test_nothing_is_broken_by_any_of_many(situation: tuple[Cluster, Rules, float]) -> None:
    cluster, rules, now = situation
    made = plan(cluster, rules, now)
    assert broken(cluster, made, now + rules.notice_seconds) == []
    World(cluster, rules).apply(made, now)  # raises where its own books say otherwise


def task(index: int, node: str, *gpus: int, role: str = "worker", stopping: bool = False) -> Task:
    return Task(role=role, index=index, node=node, gpus=gpus, stopping=stopping)


ROOM = Cluster(
    nodes=(
        Node(name="a", gpus=2, amounts={"cpu": 4}, labels={"rack": "r0"}),
        Node(name="b", gpus=2, amounts={"cpu": 4}, labels={"rack": "r1"}),
        Node(name="silent", gpus=2, ready=False),
    ),
    levels=("rack",),
    shared={"licence": 1},
    queues=(
        Queue(name="q", nominal={"gpu": 2.0}, guaranteed={"gpu": 1.0}),
        Queue(name="other", nominal={"gpu": 2.0}),
        Queue(name="capped", limit={"gpu": 1.0}, user_limit={"gpu": 1.0}),
        Queue(name="fence", nominal={"gpu": 1.0}, fenced=True),
    ),
    jobs=(
        Job(
            name="low", queue="q", roles=(Role(minimum=1, maximum=2, gpus=1),), tasks=(task(0, "a", 0),)
        ),
        Job(
            name="fixed",
            queue="q",
            preemptible=False,
            tasks=(task(0, "a", 1),),
            roles=(Role(minimum=1, maximum=1, gpus=1),),
        ),
        Job(name="asks", queue="other", roles=(Role(minimum=1, maximum=2, gpus=1),)),
        Job(name="pair", queue="other", roles=(Role(minimum=2, maximum=2, gpus=1, required="rack"),)),
        Job(name="equal", queue="q", roles=(Role(gpus=1, selector={"kind": "new"}),)),
        Job(name="small", queue="capped", roles=(Role(minimum=1, maximum=2, gpus=1),)),
        Job(name="inside", queue="fence", roles=(Role(minimum=1, maximum=2, gpus=1),)),
        Job(name="licensed", queue="other", shared={"licence": 2}, roles=(Role(amounts={"cpu": 1}),)),
        Job(name="idle", queue="other", suspended=True, roles=(Role(gpus=1),)),
    ),
)


def start(job: str, *tasks: Task) -> Start:
    return Start(job=job, code="Started", tasks=tasks)


def keep(job: str, *tasks: Task) -> Reserve:
    return Reserve(job=job, code="Preempting", tasks=tasks)


def preempt(job: str, beneficiary: str, *tasks: Task) -> Preempt:
    return Preempt(job=job, code="Preempted", beneficiary=beneficiary, tasks=tasks)


BAD: list[tuple[str, list[Step]]] = [
    ("there is no such job", [start("nobody", task(0, "b", 0))]),
    ("comes too late", [start("asks", task(0, "b", 0)), keep("pair", task(0, "b", 1), task(1, "b", 0))]),
    ("told twice", [keep("asks", task(0, "b", 0)), Deny(job="asks", code="NoRoom")]),
    ("given to low and taken", [
        Shrink(job="low", code="Shrunk", tasks=(task(0, "a", 0),)),
        Grow(job="low", code="Grown", tasks=(task(1, "b", 0),)),
    ]),
    ("that could be told to go", [preempt("low", "", task(3, "a", 0))]),
    ("of its tasks stay", [preempt("low", "")]),
    ("it is suspended", [start("idle", task(0, "b", 0))]),
    ("holds 1 tasks already", [start("low", task(1, "b", 0))]),
    ("not all of it has a place", [
        keep("asks", task(0, "a", 0)),
        Move(job="low", code="Consolidated", tasks=(task(0, "a", 0),), to=(), beneficiary="asks"),
    ]),
    ("is kept no place", [preempt("low", "asks", task(0, "a", 0))]),
    ("is for itself", [preempt("low", "low", task(0, "a", 0))]),
    ("is not told why", []),
    ("given what is not free", [start("asks", task(0, "a", 0))]),
    ("has no GPU 5", [start("asks", task(0, "b", 5))]),
    ("takes no tasks", [start("asks", task(0, "silent", 0))]),
    ("labels are others", [start("equal", task(0, "b", 0))]),
    ("asks for 1", [start("asks", task(0, "b", 0, 1))]),
    ("kept or given to several", [keep("asks", task(0, "b", 0)), start("small", task(0, "b", 0))]),
    ("licence are given out", [start("licensed", task(0, "b"))]),
    ("1 of 2 worker", [start("pair", task(0, "b", 0))]),
    ("worker-0 2 times", [start("asks", task(0, "b", 0), task(0, "b", 1))]),
    ("of 2", [start("asks", task(5, "b", 0))]),
    ("must be in one rack", [
        preempt("low", "", task(0, "a", 0)), start("pair", task(0, "b", 0), task(1, "a", 0))
    ]),
    ("UserCap", [start("small", task(0, "b", 0), task(1, "b", 1))]),
    ("Limit", [start("small", task(0, "b", 0), task(1, "b", 1))]),
    ("need not give way", [keep("asks", task(0, "a", 1)), preempt("fixed", "asks", task(0, "a", 1))]),
    ("not of higher priority", [
        keep("equal", task(0, "a", 0)), preempt("low", "equal", task(0, "a", 0))
    ]),
    ("inside a fence", [keep("inside", task(0, "a", 0)), preempt("low", "inside", task(0, "a", 0))]),
    ("that it is guaranteed", [
        keep("asks", task(0, "a", 0), task(1, "a", 1)),
        preempt("low", "asks", task(0, "a", 0)),
        preempt("fixed", "asks", task(0, "a", 1)),
    ]),
    ("potential does not fall", [
        keep("small", task(0, "a", 0)), preempt("low", "small", task(0, "a", 0))
    ]),
]  # fmt: skip


def filled(steps: list[Step]) -> Plan:
    """Everybody else is told why it waits; but nobody, where there are no steps."""
    told = {step.job for step in steps}
    waits = [job.name for job in ROOM.jobs if not (job.tasks or job.suspended or job.name in told)]
    said = [Deny(job=name, code="NoRoom") for name in waits] if steps else []
    return msgspec.convert({"steps": msgspec.to_builtins([*steps, *said])}, Plan)


@pytest.mark.parametrize(("sentence", "steps"), BAD, ids=[sentence for sentence, _ in BAD])
def test_a_bad_plan_is_told(sentence: str, steps: list[Step]) -> None:
    found = broken(ROOM, filled(steps), 0.0)
    assert [each for each in found if sentence in each], found


def test_a_good_plan_is_not() -> None:
    steps = [start("asks", task(0, "b", 0)), start("small", task(0, "b", 1))]
    assert broken(ROOM, filled([*steps]), 0.0) == []
