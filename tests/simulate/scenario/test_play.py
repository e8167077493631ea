"""What happens in a scenario, in what order, and what is decided then."""

from __future__ import annotations

import msgspec
import pytest

from shoal.schedule.cycle import planner
from shoal.schedule.cycle.steps import Plan, Start
from shoal.simulate.errors import BadInput
from shoal.simulate.scenario import play as module
from tests.simulate.scenario.small import played, scenario

TWO = """
nodes: [{gpus: 2}]
jobs:
  - {name: first, gpus: 2}
  - {name: second, gpus: 2, created: 1m}
"""


def said(decisions):
    return [(each.at, list(each.happened)) for each in decisions]


def test_jobs_come_when_they_were_created_and_end_when_they_have_lasted(tmp_path):
    decisions = played(
        tmp_path, TWO.replace("gpus: 2}\n  -", "gpus: 2, lasts: 5m}\n  -") + "until: 10m\n"
    )
    assert said(decisions) == [(0, []), (60, ["second comes"]), (300, ["first ends"])]
    assert [[job.name for job in each.after.jobs if job.present] for each in decisions] == [
        ["first"],
        ["first"],
        ["second"],
    ]


def test_what_an_event_submits_for_later_comes_then(tmp_path):
    event = "events: [{at: 2m, submit: {name: more, count: 2, every: 30s, gpus: 1}}]\nuntil: 5m\n"
    assert said(played(tmp_path, TWO + event))[2:] == [(120, ["more0 comes"]), (150, ["more1 comes"])]


def test_nothing_is_decided_after_the_end(tmp_path):
    assert [each.at for each in played(tmp_path, TWO + "until: 30s\n")] == [0]


def test_an_event_is_followed_by_a_decision_also_two_at_one_time(tmp_path):
    events = "events: [{at: 2m, finish: first}, {at: 2m, submit: {name: third, gpus: 1}}, {at: 3m}]"
    decisions = played(tmp_path, TWO + events)
    assert said(decisions)[2:] == [
        (120, ["first ends"]),
        (120, ["third comes"]),
        (180, []),
    ]


def test_who_is_told_to_stop_is_gone_after_so_long(tmp_path):
    text = """
    nodes: [{gpus: 2}]
    jobs: [{name: low, gpus: 2, running: node0}]
    stops: 20s
    until: 5m
    events: [{at: 1m, submit: {name: high, gpus: 2, priority: 1}}]
    """
    decisions = played(tmp_path, text)
    assert said(decisions)[1:] == [(60, ["high comes"]), (80, ["low/worker-0 is gone"])]
    assert [job.name for job in decisions[-1].after.jobs if job.present] == ["high"]


def test_who_stops_already_is_gone_after_so_long_too(tmp_path):
    text = "nodes: [{gpus: 1}]\njobs: [{name: a, gpus: 1, stopping: node0}]\nstops: 5s\nuntil: 1m\n"
    assert [each.at for each in played(tmp_path, text)] == [0, 5]


def test_all_that_can_happen_is_told_in_words(tmp_path):
    text = """
    nodes: [{count: 3, gpus: 2}]
    jobs:
      - {name: elastic, maximum: 2, gpus: 1, running: [node0, node0]}
      - {name: leaving, tasks: 2, gpus: 1, stopping: [node1, node1]}
      - {name: doomed, gpus: 1, running: node2}
    events:
      - {at: 1s, gone: {leaving: [0]}, resize: {elastic: {worker: 4}}}
      - {at: 2s, gone: leaving, cancel: doomed, silent: node2}
      - {at: 3s, gone: all, back: node2, lose: node0, resize: {elastic: 1}}
      - {at: 4s, back: node0}
    """
    assert said(played(tmp_path, text))[1:] == [
        (1, ["tasks of leaving are gone", "elastic may have 4 tasks"]),
        (2, ["tasks of leaving are gone", "doomed is cancelled", "node2 falls silent"]),
        (
            3,
            [
                "who was told to stop is gone",
                "node0 is lost",
                "node2 is back",
                "elastic may have 1 tasks",
            ],
        ),
        (4, ["node0 is back"]),
    ]


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ("finish: nobody", "there is no job nobody by then"),
        ("gone: nobody", "there is no job nobody by then"),
        ("cancel: [first, nobody]", "there is no job nobody by then"),
        ("resize: {nobody: 2}", "there is no job nobody by then"),
        ("resize: {first: {helper: 2}}", "first has no role helper"),
        ("finish: second", "there is no job second by then"),
    ],
)
def test_an_event_about_nobody_is_one_sentence_with_its_line(tmp_path, event, sentence):
    with pytest.raises(BadInput) as caught:
        played(tmp_path, TWO + f"events: [{{at: 30s, {event}}}]")
    assert sentence in caught.value.message and "small.yaml, line 6, events[0]" in caught.value.message


def test_a_plan_that_breaks_a_rule_is_the_last(tmp_path, monkeypatch):
    real = planner.plan

    def overcommits(cluster, rules, now):
        plan = real(cluster, rules, now)
        starts = [step for step in plan.steps if isinstance(step, Start)]
        return Plan(
            steps=(*plan.steps, *(msgspec.structs.replace(step, job="second") for step in starts))
        )

    read = scenario(tmp_path, TWO.replace("1m", "0s") + "events: [{at: 1m}]")
    monkeypatch.setattr(
        planner, "plan", lambda *_: pytest.fail("the world asks the planner it was given")
    )
    decisions = module.play(read, overcommits)
    assert len(decisions) == 1
    (sentence,) = decisions[0].unmet
    assert sentence.startswith("small: at 0 s the plan breaks a rule: ")


def test_equal_files_give_equal_decisions(tmp_path):
    text = TWO + "events: [{at: 2m, finish: first}]"
    assert played(tmp_path, text) == played(tmp_path, text)
