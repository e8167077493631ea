"""What has to hold of every decision, tried on all that the scenarios come to."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import pytest

from shoal.schedule.cycle.planner import plan
from shoal.schedule.cycle.rows import Cluster, Rules
from shoal.schedule.cycle.steps import Deny, Plan, Reserve
from shoal.simulate.scenario.play import Decision, play
from shoal.simulate.scenario.whole import Scenario, read_scenario

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
LARGE = ("B4-", "B5-", "B9-")
MOST = 4
"""Decisions of one file that are looked at, evenly over its time."""

RESTLESS: dict[str, str] = {}
"""What goes on though nothing has happened. A file that comes to rest must be taken off."""

every_file = pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.soak] if path.stem.startswith(LARGE) else [])
        for path in FILES
    ],
)


@functools.cache
def decisions(path: Path) -> tuple[Scenario, list[Decision]]:
    scenario = read_scenario(path)
    made = play(scenario)
    return scenario, made[:: -(-len(made) // MOST)]


def loud(made: Plan) -> list[str]:
    return [
        f"{type(step).__name__} {step.job}"
        for step in made.steps
        if not isinstance(step, Reserve | Deny)
    ]


@every_file
def test_a_second_decision_at_the_same_time_has_nothing_to_do(
    path: Path, request: pytest.FixtureRequest
) -> None:
    if path.stem in RESTLESS:
        request.applymarker(pytest.mark.xfail(strict=True, reason=RESTLESS[path.stem]))
    scenario, made = decisions(path)
    for decision in made:
        assert loud(plan(decision.after, scenario.rules, decision.at)) == [], decision.at


@pytest.mark.slow
@every_file
def test_the_order_of_rows_and_a_way_through_a_file_change_nothing(path: Path) -> None:
    scenario, made = decisions(path)
    for decision in made:
        rows = decision.after
        expected = msgspec.json.encode(plan(rows, scenario.rules, decision.at))
        other = msgspec.structs.replace(rows, jobs=rows.jobs[::-1])
        assert msgspec.json.encode(plan(other, scenario.rules, decision.at)) == expected
        read = msgspec.json.decode(msgspec.json.encode(rows), type=Cluster)
        rules = msgspec.json.decode(msgspec.json.encode(scenario.rules), type=Rules)
        assert msgspec.json.encode(plan(read, rules, decision.at)) == expected


@every_file
def test_whoever_waits_is_told_why_once(path: Path) -> None:
    _, made = decisions(path)
    for decision in made:
        waiting = [step.job for step in decision.plan.steps if isinstance(step, Deny | Reserve)]
        assert len(waiting) == len(set(waiting))
        after = decision.after.jobs
        running = {job.name for job in after if job.present}
        waits = {job.name for job in after if not job.present and not job.suspended}
        stopping = {job.name for job in after if job.tasks and not job.present}
        told = {*waiting} - stopping - running
        assert told == waits - stopping, decision.at
