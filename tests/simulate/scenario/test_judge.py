"""Each expectation can fail, and says what came instead."""

from __future__ import annotations

import pytest

from shoal.schedule.cycle.rows import Cluster, Job, Node, Task
from shoal.schedule.cycle.steps import Deny, Grow, Move, Plan, Preempt, Reserve, Shrink, Start
from shoal.simulate.scenario.judge import unmet
from shoal.simulate.scenario.wishes import read_expectation
from tests.simulate.scenario.small import spot


def tasks(*nodes, first=0):
    return tuple(Task(index=first + at, node=node) for at, node in enumerate(nodes))


LIMIT = {"queue": "spring", "resource": "gpu", "bound": 4.0, "used": 4.0, "asked": 1.0}
PLAN = Plan(
    steps=(
        Reserve(job="waits", code="Dated", at=60.0),
        Reserve(job="comes", code="Preempting", tasks=tasks("n1")),
        Shrink(job="elastic", code="Preempted", tasks=tasks("n1", first=2), beneficiary="comes"),
        Preempt(job="low", code="Preempted", tasks=tasks("n1"), beneficiary="comes"),
        Move(job="mover", code="Consolidated", tasks=tasks("n0"), to=tasks("n1"), beneficiary="comes"),
        Start(job="gang", code="Started", tasks=tasks("n0", "n1", "n0")),
        Grow(job="grows", code="Grown", tasks=tasks("n1", first=1)),
        Deny(job="no1", code="Limit", evidence=LIMIT),
        Deny(job="no2", code="TooLarge"),
    )
)
AFTER = Cluster(
    nodes=(Node(name="n0", labels={"rack": "r0"}), Node(name="n1", labels={"rack": "r1"})),
    jobs=(
        Job(name="gang", tasks=tasks("n0", "n1", "n0")),
        Job(name="no1"),
        Job(name="no2"),
        Job(name="elastic", tasks=tasks("n0", "n1")),
    ),
)


@pytest.mark.parametrize(
    "wish",
    [
        "start: [gang]",
        "start: gang",
        "start: {gang: 3}",
        "start: {gang: [n1, n0, n0]}",
        "start: {gang: {indices: [2, 0, 1], nodes: [n0, n0, n1], tasks: 3}}",
        "grow: {grows: {within: {rack: r1}, code: [Other, Grown]}}",
        "shrink: {elastic: [2]}",
        "shrink: {elastic: {for: comes}}",
        "preempt: {low: n1}",
        "move: {mover: {nodes: [n0], to: n1}}",
        "stop: [elastic, low, mover]",
        "reserve: {waits: {at: 60s}, comes: }",
        "reserve: {waits: {atMost: 2m}, comes: 1}",
        "deny: {no1: {says: [spring, Limit]}, no2: {code: TooLarge}}",
        "deny: ['no*']",
        "deny: {no1: Limit, no2: }",
        "runs: {gang: 3, elastic: [n1, n0]}",
        "waits: [no1]",
        "waits: ['no?']",
        "oneOf: [{start: [low]}, {waits: [no2]}]",
        "{start: [gang], waits: [no1, no2]}",
    ],
)
def test_what_holds(wish):
    assert unmet(read_expectation(spot(wish)), PLAN, AFTER) == []


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ("start: []", "start of nobody else expected, but of gang (start 2@n0, 1@n1 (Started))"),
        ("start: ", "start of nobody else expected"),
        ("start: [gang, low]", "start of low expected, but: preempt 1@n1 (Preempted)"),
        ("start: [gang, absent]", "start of absent expected, but: there is no such job"),
        ("start: {gang: 2}", "start of gang: 2 tasks expected, not 3: 2@n0, 1@n1"),
        ("start: {gang: [n0, n1, n1]}", "on n0, n1, n1 expected, not on 2@n0, 1@n1"),
        ("start: {gang: {within: {rack: r0}}}", "within rack r0 expected, not on n1"),
        ("start: {gang: {code: Other}}", "code Other expected, not Started"),
        ("shrink: {elastic: [1]}", "tasks [1] expected, not [2]"),
        ("shrink: {elastic: {for: low}}", "for low expected, not for comes"),
        ("preempt: []", "preempt of nobody else expected, but of low"),
        ("move: {mover: {to: n0}}", "to n0 expected, not to 1@n1"),
        ("stop: [elastic, low]", "stop of nobody else expected, but of mover"),
        ("reserve: {waits: {at: 61s}, comes: }", "at 61 s expected, not 60 s"),
        ("reserve: {waits: {atMost: 59s}, comes: }", "at 59 s at the latest expected, not 60 s"),
        ("reserve: {comes: {at: 1s}, waits: }", "at 1 s expected, not no date"),
        ("deny: {no1: TooLarge, no2: }", "deny of no1: code TooLarge expected, not Limit"),
        ("deny: {no1: {says: autumn}, no2: }", "the reason was to say 'autumn', not:"),
        ("deny: ['no*', 'gang']", "deny of gang expected, but: start 2@n0, 1@n1 (Started)"),
        ("deny: ['other*', 'no*']", "deny of other* expected, but: there is no such job"),
        ("runs: [no1]", "no1 was to run, but deny (Limit)"),
        ("runs: {gang: 2}", "gang runs, but 2 tasks expected, not 3"),
        ("waits: [gang]", "gang was to wait, but it is on 2@n0, 1@n1"),
        ("waits: [absent]", "absent was to wait, but there is no such job"),
        ("quiet: true", "nothing was to start, stop or move, but: shrink elastic, preempt low"),
        ("oneOf: [{start: [low]}, {waits: [gang]}]", "none of 2 ways came true"),
    ],
)
def test_what_does_not_hold_is_told_with_what_came_instead(wish, sentence):
    found = unmet(read_expectation(spot(wish)), PLAN, AFTER)
    assert any(sentence in each for each in found), found
    assert all(each.startswith("small.yaml, line 1") for each in found)


def test_a_pattern_stands_for_all_that_it_matches():
    plan = Plan(steps=PLAN.steps[:-1])
    (wrong,) = unmet(read_expectation(spot("deny: ['no*']")), plan, AFTER)
    assert "deny of no2 expected, but: the plan does nothing with it" in wrong


def test_nothing_moves_where_only_places_are_kept_and_refused():
    plan = Plan(steps=(PLAN.steps[0], PLAN.steps[-1]))
    assert unmet(read_expectation(spot("quiet: true")), plan, AFTER) == []
