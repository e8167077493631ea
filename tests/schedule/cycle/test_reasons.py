"""Why a job waits: removing all reasons starts it, leaving any one of them does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
import pytest

from shoal.schedule.cycle.planner import plan
from shoal.schedule.cycle.rows import Budget, Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.steps import Deny, Start
from shoal.schedule.cycle.words import CODES, say

Reason = dict[str, Any]
change = msgspec.structs.replace
NOW = 1000.0
RULES = Rules(consolidate=False)


def drawn(seed: int) -> Cluster:
    """Jobs that run and give nothing back, and one that waits, `asks`, for whatever reasons."""
    draw = Random(seed)
    levels = ("rack",)
    nodes = tuple(
        Node(
            name=f"n{at}",
            amounts={"cpu": 8},
            gpus=4,
            labels={"rack": f"r{at // 2}", "kind": draw.choice(["old", "new"])},
            ready=draw.random() > 0.15,
            schedulable=draw.random() > 0.1,
        )
        for at in range(4)
    )
    limit = {name: float(draw.randint(2, 9)) for name in ("gpu", "cpu") if draw.random() < 0.3}
    team = Queue(
        name="team",
        limit={name: float(draw.randint(4, 12)) for name in ("gpu",) if draw.random() < 0.3},
        jobs=draw.choice([None, None, 2]),
    )
    queue = Queue(
        name="q",
        parent="team",
        limit=limit,
        namespaces=draw.choice([(), (), ("lab",)]),
        highest=draw.choice([{}, {}, {"*": 5}, {"default": 20, "*": 5}]),
        user_limit={"gpu": float(draw.randint(1, 6))} if draw.random() < 0.3 else {},
        budgets=(Budget(name="year", resource="gpu", hours=10.0, spent=draw.choice([1.0, 11.0])),),
    )
    other = Queue(name="other")
    free = {node.name: [8, list(range(4))] for node in nodes}
    jobs: list[Job] = []
    for at in range(draw.randint(0, 8)):
        node = draw.choice(nodes).name
        gpus = draw.randint(0, 3)
        if free[node][0] < 2 or len(free[node][1]) < gpus:
            continue
        free[node][0] -= 2
        task = Task(node=node, gpus=tuple(free[node][1].pop() for _ in range(gpus)))
        jobs.append(
            Job(
                name=f"runs{at}",
                queue=draw.choice(["q", "other"]),
                user=draw.choice(["ann", "bob"]),
                roles=(Role(amounts={"cpu": 2}, gpus=gpus),),
                tasks=(task,),
                preemptible=False,
                shared={"licence": 1} if draw.random() < 0.3 else {},
            )
        )
    tasks = draw.randint(1, 5)
    asks = Job(
        name="asks",
        queue="q",
        user="ann",
        priority=10,
        created=NOW,
        roles=(
            Role(
                minimum=tasks,
                maximum=tasks,
                amounts={"cpu": draw.randint(1, 9)},
                gpus=draw.randint(0, 5),
                selector=draw.choice([{}, {}, {"kind": "new"}, {"kind": "none"}]),
            ),
        ),
        required=draw.choice(["", "", "rack"]),
        shared={"licence": draw.randint(1, 4)} if draw.random() < 0.3 else {},
    )
    return Cluster(
        nodes=nodes,
        levels=levels,
        queues=(team, queue, other),
        jobs=(*jobs, asks),
        shared={"licence": 3},
    )


def answer(cluster: Cluster) -> Deny | Start:
    (step,) = [step for step in plan(cluster, RULES, NOW).steps if step.job == "asks"]
    assert isinstance(step, Deny | Start), step
    return step


def reasons(step: Deny) -> list[Reason]:
    mine = {name: value for name, value in step.evidence.items() if name != "also"}
    return [{"code": step.code, **mine}, *step.evidence.get("also", [])]


def removed(cluster: Cluster, given: Iterable[Reason], closed: bool) -> Cluster:
    """`closed`: it waits for nodes too, so new ones are like them."""
    for reason in given:
        known = len(cluster.nodes)
        cluster = _REMOVE[reason["code"]](cluster, reason)
        new = tuple(change(node, ready=not closed) for node in cluster.nodes[known:])
        cluster = change(cluster, nodes=(*cluster.nodes[:known], *new))
        closed = closed and reason["code"] != "WaitingForNode"
    return cluster


def _queue(cluster: Cluster, name: str, edit: Callable[[Queue], Queue]) -> Cluster:
    rows = tuple(edit(queue) if queue.name == name else queue for queue in cluster.queues)
    return change(cluster, queues=rows)


def _unlimited(cluster: Cluster, reason: Reason) -> Cluster:
    resource = reason["resource"]

    def edit(queue: Queue) -> Queue:
        if resource == "jobs":
            return change(queue, jobs=None)
        return change(queue, limit={k: v for k, v in queue.limit.items() if k != resource})

    return _queue(cluster, reason["queue"], edit)


def _uncapped(cluster: Cluster, reason: Reason) -> Cluster:
    return _queue(cluster, reason["queue"], lambda queue: change(queue, user_limit={}))


def _more_nodes(cluster: Cluster, reason: Reason) -> Cluster:
    """One that holds all of it, so that it is close together too."""
    role = cluster.jobs[-1].roles[0]
    node = Node(
        name=f"large{len(cluster.nodes)}",
        amounts={"cpu": 100},
        gpus=32,
        labels={"rack": "new", "kind": role.selector.get("kind", "new")},
    )
    return change(cluster, nodes=(*cluster.nodes, node))


def _all_answer(cluster: Cluster, reason: Reason) -> Cluster:
    rows = (change(node, ready=True, schedulable=True) for node in cluster.nodes)
    return change(cluster, nodes=tuple(rows))


def _licences(cluster: Cluster, reason: Reason) -> Cluster:
    return change(cluster, shared={"licence": 100})


_REMOVE: dict[str, Callable[[Cluster, Reason], Cluster]] = {
    "NamespaceNotAllowed": lambda c, _: _queue(c, "q", lambda queue: change(queue, namespaces=())),
    "PriorityTooHigh": lambda c, _: _queue(c, "q", lambda queue: change(queue, highest={})),
    "WaitingForNode": _all_answer,
    "BudgetExhausted": lambda c, r: _queue(c, "q", lambda queue: change(queue, budgets=())),
    "NoNodeSuits": _more_nodes,
    "TooLarge": _more_nodes,
    "TooFarApart": _more_nodes,
    "NoRoom": _more_nodes,
    "Fragmented": _more_nodes,
    "TopologyBusy": _more_nodes,
    "Limit": _unlimited,
    "OverLimit": _unlimited,
    "UserCap": _uncapped,
    "OverUserCap": _uncapped,
    "SharedLacking": _licences,
    "TooFewShared": _licences,
}


@pytest.mark.parametrize("part", range(6))
@pytest.mark.slow
def test_all_reasons_and_each_of_them(part: int) -> None:
    seen: dict[str, int] = {}
    several = 0
    for seed in range(part * 100, part * 100 + 100):
        cluster = drawn(seed)
        step = answer(cluster)
        if isinstance(step, Start):
            continue
        held = reasons(step)
        several += len(held) > 1
        closed = any(reason["code"] == "WaitingForNode" for reason in held)
        for reason in held:
            seen[reason["code"]] = seen.get(reason["code"], 0) + 1
        assert isinstance(answer(removed(cluster, held, closed)), Start), (seed, held)
        for left in held:
            rest = [each for each in held if each is not left]
            after = answer(removed(cluster, rest, closed))
            assert isinstance(after, Deny), (seed, left)
            assert after.code == left["code"], (seed, left, after)
    assert several > 5
    assert len(seen) > 5, seen


@pytest.mark.slow
def test_the_first_reason_is_the_first_in_the_order_of_the_words() -> None:
    for seed in range(200):
        step = answer(drawn(seed))
        if isinstance(step, Deny):
            places = [CODES.index(reason["code"]) for reason in reasons(step)]
            assert places[0] == min(places), (seed, reasons(step))


@pytest.mark.slow
def test_each_step_is_said_in_a_sentence() -> None:
    for seed in range(100):
        for step in plan(drawn(seed), RULES, NOW).steps:
            said = say(step.code, step.evidence)
            assert step.code in CODES
            assert said.sentence
            assert "{" not in said.sentence


def test_a_budget_holds_those_alone_that_it_pays_for() -> None:
    spent = Queue(name="q", budgets=(Budget(name="year", resource="gpu", hours=10.0, spent=10.0),))
    nodes = (Node(name="n", gpus=1, amounts={"cpu": 2}),)
    jobs = (
        Job(name="asks", queue="q", roles=(Role(gpus=1),)),
        Job(name="plain", queue="q", roles=(Role(amounts={"cpu": 1}),)),
    )
    steps = {
        step.job: step
        for step in plan(Cluster(nodes=nodes, queues=(spent,), jobs=jobs), RULES, NOW).steps
    }
    assert isinstance(steps["plain"], Start)
    assert steps["asks"].code == "BudgetExhausted"
