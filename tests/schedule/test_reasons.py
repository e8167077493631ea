from __future__ import annotations

import sys

import pytest

from shoal.objects.node import Taint
from shoal.schedule.cycle.rows import Queue
from shoal.schedule.decide import decide
from shoal.schedule.explain import CODES, explain
from shoal.schedule.plan import policy_named
from shoal.schedule.snapshot import Form
from tests.schedule.world import NOW, Job, codes, gang, node, role, snapshot, write_of

EDITION = 1


@pytest.fixture(autouse=True, params=[1, 2])
def edition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both scheduling cores keep these promises."""
    monkeypatch.setattr(sys.modules[__name__], "EDITION", request.param)


def denied(nodes, *jobs: Job, queues=()) -> tuple[str, str]:
    """The last job's code, and the sentence that goes with it."""
    plan = decide(snapshot(nodes, jobs, queues), policy_named("shoal", edition=EDITION), NOW)
    write = write_of(plan, jobs[-1].fields["name"])
    return write.code, explain(write.code, write.evidence).sentence


def test_no_nodes():
    assert denied([], Job("j", gang())) == ("NoNodes", "the cluster has no nodes")
    lost = denied([node("n", lost=True)], Job("j", gang()))
    assert lost == ("NoNodes", "every node of the cluster is declared lost (n)")


def test_a_refusal_says_what_the_node_said():
    refused = {"avoid": "n", "avoid_until": NOW + 2, "avoid_message": "it cannot do that"}
    job = Job("j", gang(), avoid_reason="IsolationUnavailable", **refused)
    code, said = denied([node("n")], job)
    assert code == "PlacementRefused"
    assert said == "node n refused the job a moment ago and is left alone for a while: it cannot do that"


def test_no_node_with_the_labels():
    code, said = denied([node("n")], Job("j", gang(selector=(("disk", "fast"),))))
    assert code == "NoNodeSuits"
    assert said == (
        "none of the cluster's 1 node suits role worker: it needs one that has the labels disk=fast"
    )


def test_no_node_without_taints():
    code, said = denied([node("n", taints=(Taint(key="drain"),))], Job("j", gang()))
    assert code == "NoNodeSuits"
    assert said.endswith("it needs one that is without taints that it does not tolerate (drain)")


def test_a_task_larger_than_any_node():
    code, said = denied([node("n"), node("m", 2000)], Job("j", gang(cpu=5500)))
    assert code == "TooLarge"
    assert said == "it needs 1 x worker at once, and empty nodes that suit hold 0 x worker"


def test_a_gang_larger_than_the_cluster():
    code, said = denied([node("n"), node("m", 2500)], Job("j", gang(7)))
    assert code == "TooLarge"
    assert said == "it needs 7 x worker at once, and empty nodes that suit hold 6 x worker"


def test_what_can_never_be_comes_before_what_is_not_yet():
    nodes = [node("n", ready=False), node("m", 1000)]
    assert denied(nodes, Job("j", gang(9)))[0] == "TooLarge"
    assert denied(nodes, Job("j", gang(4))) == ("WaitingForNode", "it waits for n to answer")


def test_silent_and_cordoned_nodes_are_both_named():
    nodes = [node("n", ready=False), node("m", schedulable=False)]
    code, said = denied(nodes, Job("j", gang(8)))
    assert (code, said) == (
        "WaitingForNode",
        "it waits for n to answer and for m to take tasks again",
    )


@pytest.mark.parametrize(
    ("shape", "short"),
    [
        ({"cpu": 1000}, "CPU"),
        ({"cpu": 0, "memory": 3 * 2**30}, "memory"),
        ({"cpu": 0, "gpu": 1}, "GPUs"),
    ],
)
def test_the_resource_that_is_short_and_who_has_it(shape, short: str):
    gpus = {"gpus": ("g0", "g1"), "labels": {"kind": "gpu"}}
    nodes = [node("n", memory=8 * 2**30, **gpus), node("m", memory=8 * 2**30)]
    busy = [
        Job("one", gang(1, cpu=3000, memory=6 * 2**30, gpu=1), "+0@n/g0"),
        Job("two", gang(1, cpu=2000, memory=5 * 2**30), "+0@m"),
    ]
    tasks = 2 if "gpu" in shape else 4
    got, sentence = denied(nodes, *busy, Job("j", gang(tasks, **shape)))
    assert got == "NoRoom"
    assert f"for lack of {short}; most is held by default/one" in sentence


def test_capacity_that_is_scattered_is_said_to_be():
    busy = [Job("one", gang(1, cpu=2500), "+0@n"), Job("two", gang(1, cpu=2500), "+0@m")]
    code, said = denied([node("n"), node("m")], *busy, Job("j", gang(2, cpu=1501)))
    assert code == "NoRoom"
    assert "room for 0 x worker, for lack of CPU" in said


def test_all_roles_are_named():
    form = Form(roles=(role(1, name="head"), role(3, name="tail")), minimum=0)
    busy = Job("busy", gang(1), "+0@n")
    code, said = denied([node("n")], busy, Job("j", form))
    assert code in ("NoRoom", "Fragmented")
    assert "1 x head and 3 x tail" in said


def test_quota_that_is_used_up_and_quota_that_never_suffices():
    queues = [Queue(name="default", limit={"gpu": 2})]
    nodes = [node("n", gpus=("g0", "g1", "g2"))]
    busy = Job("busy", gang(1, gpu=1), "+0@n/g0")
    assert denied(nodes, busy, Job("j", gang(2, gpu=1)), queues=queues) == (
        "Limit",
        "queue default uses 1 GPU of its limit of 2 GPUs, and it asks for 2 GPUs",
    )
    assert denied(nodes, Job("j", gang(3, gpu=1)), queues=queues) == (
        "OverLimit",
        "it asks for 3 GPUs, and queue default never has more than 2 GPUs for it",
    )


def test_the_queues_own_reasons():
    queues = [Queue(name="q", namespaces=("team",), highest={"*": 0})]
    assert denied([node("n")], Job("j", gang(), queue="none"))[1] == "there is no queue none"
    assert denied([node("n")], Job("j", gang(), queue="q"), queues=queues)[1] == (
        "queue q takes jobs of team alone, not of namespace default"
    )
    high = Job("j", gang(), queue="q", namespace="team", priority=7)
    assert denied([node("n")], high, queues=queues)[1] == (
        "priority 7 is above 0, the highest that this namespace may use in queue q"
    )


def test_the_order_of_the_codes_is_the_documented_one():
    assert CODES[:5] == (
        "QueueMissing",
        "NamespaceNotAllowed",
        "PriorityTooHigh",
        "NoNodes",
        "NoNodeSuits",
    )
    queues = [Queue(name="default", namespaces=("team",), highest={"*": -1}, limit={"cpu": 0})]
    assert denied([], Job("j", gang()), queues=queues)[0] == "NamespaceNotAllowed"
    team = Job("j", gang(), namespace="team")
    assert denied([], team, queues=queues)[0] == "PriorityTooHigh"
    low = Job("j", gang(), namespace="team", priority=-1)
    code, said = denied([], low, queues=queues)
    assert code == "NoNodes"
    assert "besides: it asks for 1 CPU, and queue default never has more than 0 CPU" in said


def test_a_code_of_another_version_says_its_name():
    assert explain("Novelty", {}).sentence == "the scheduler says Novelty"
    assert explain("", {}).sentence == "nothing holds the job back"


def test_a_waiting_job_is_told_what_would_change_it():
    plan = decide(
        snapshot([node("n", ready=False)], [Job("j", gang())]),
        policy_named("shoal", edition=EDITION),
        NOW,
    )
    assert codes(plan) == {"j": "WaitingForNode"}
    remedy = explain("WaitingForNode", write_of(plan, "j").evidence).remedy
    assert remedy == "if it is gone for good: shoal lost node/n"
