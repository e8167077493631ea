"""The fields of a node, and what of a role answers to them: shown on jobs that run, wait or move."""

import msgspec
import pytest

from shoal.cluster.local import nodes
from shoal.objects.kinds import JOB, NODE
from shoal.testing.local import wait_until
from tests.scenarios.fields import shows
from tests.scenarios.standing import Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

NOTE = "echo $SHOAL_NODE >> $SHOAL_OUTPUT/notes"
STAY = f"{NOTE}; exec sleep 60"
ON_GOLD = {"nodeSelector": {"disk": "ssd"}}


@shows(NODE, "spec.labels")
@shows(JOB, "spec.roles[].nodeSelector")
def test_a_role_runs_where_the_labels_are(cluster: Standing) -> None:
    job = cluster.job(role(NOTE, **ON_GOLD))
    assert cluster.finished(job).status.phase == "Succeeded"
    assert cluster.notes(job) == ["gold"]
    waits = cluster.job(role(NOTE, nodeSelector={"zone": "b", "tier": "1"}))
    assert cluster.waiting(waits) == "NoNodeSuits"
    with cluster.node("plain", labels={"zone": "b", "tier": "1"}):
        assert cluster.finished(waits).status.phase == "Succeeded"
        assert cluster.notes(waits) == ["plain"]


@shows(NODE, "spec.labels")
def test_declared_labels_are_followed_when_they_change(cluster: Standing) -> None:
    """The nodes that a home declares may be edited while all runs; people's labels stay beside them."""
    waits = cluster.job(role(NOTE, nodeSelector={"rack": "r9", "mine": "1"}))
    declared = nodes.load(cluster.home)
    named = [
        msgspec.structs.replace(each, labels={**each.labels, "rack": "r9"})
        if each.name == "plain"
        else each
        for each in declared
    ]
    with cluster.node("plain", labels={"mine": "1"}):
        assert cluster.waiting(waits) == "NoNodeSuits"
        nodes.save(cluster.home, named)
        try:
            assert cluster.finished(waits).status.phase == "Succeeded"
            assert cluster.notes(waits) == ["plain"]
        finally:
            nodes.save(cluster.home, declared)
        wait_until(
            lambda: "rack" not in cluster.client.get(NODE.struct, "", "plain").spec.labels,
            what="the label is gone with its declaration",
        )


TOLERATIONS = {
    "the taint itself": ({"key": "team", "value": "a", "effect": "NoSchedule"}, True),
    "its key": ({"key": "team"}, True),
    "its key and value": ({"key": "team", "value": "a"}, True),
    "everything": ({}, True),
    "every taint of its effect": ({"effect": "NoSchedule"}, True),
    "another key": ({"key": "crew", "value": "a"}, False),
    "another value": ({"key": "team", "value": "b"}, False),
    "another effect": ({"key": "team", "value": "a", "effect": "NoExecute"}, False),
}


@shows(NODE, "spec.taints[].key", "spec.taints[].value", "spec.taints[].effect")
@shows(
    JOB,
    "spec.roles[].tolerations[].key",
    "spec.roles[].tolerations[].value",
    "spec.roles[].tolerations[].effect",
)
def test_a_taint_keeps_away_who_does_not_tolerate_it(cluster: Standing) -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    before = cluster.job(role(STAY, **ON_GOLD))
    cluster.running(before)
    with cluster.node("gold", taints=[taint]):
        jobs = {
            name: cluster.job(role(NOTE, tolerations=[toleration], **ON_GOLD))
            for name, (toleration, _) in TOLERATIONS.items()
        }
        without = cluster.job(role(NOTE, **ON_GOLD))
        for name, (_, tolerated) in TOLERATIONS.items():
            if tolerated:
                assert cluster.finished(jobs[name]).status.phase == "Succeeded", name
            else:
                assert cluster.waiting(jobs[name]) == "NoNodeSuits", name
        assert cluster.waiting(without) == "NoNodeSuits"
        assert cluster.look(before).status.phase == "Running", "NoSchedule ends nothing"
    assert cluster.finished(without).status.phase == "Succeeded", "the taint is gone"
    assert cluster.notes(before) == ["gold"]


@shows(NODE, "spec.taints[].effect")
def test_no_execute_also_ends_what_runs(cluster: Standing) -> None:
    with cluster.node("plain", unschedulable=True):
        goes, stays = cluster.job(role(STAY)), cluster.job(role(STAY, tolerations=[{"key": "repair"}]))
        for job in (goes, stays):
            cluster.until_noted(job, "gold")
    with cluster.node("gold", taints=[{"key": "repair", "effect": "NoExecute"}]):
        cluster.until_noted(goes, "plain")
        assert cluster.running(goes).status.failures == 0
        assert cluster.look(stays).status.phase == "Running"
        assert cluster.notes(stays) == ["gold"]


@shows(NODE, "spec.unschedulable")
def test_nothing_new_starts_on_an_unschedulable_node(cluster: Standing) -> None:
    there = cluster.job(role(STAY, **ON_GOLD))
    cluster.running(there)
    with cluster.node("gold", unschedulable=True):
        waits = cluster.job(role(STAY, **ON_GOLD))
        assert cluster.waiting(waits) == "WaitingForNode"
        assert cluster.look(there).status.phase == "Running"
    cluster.running(waits)
    assert cluster.notes(there) == ["gold"]


@shows(NODE, "spec.lost")
def test_the_tasks_of_a_lost_node_are_replaced_elsewhere(cluster: Standing) -> None:
    with cluster.node("plain", unschedulable=True):
        job = cluster.job(role(STAY))
        cluster.until_noted(job, "gold")
    with cluster.node("gold", lost=True):
        cluster.until_noted(job, "plain")
        now = cluster.running(job)
        assert (now.status.infrastructure_failures, now.status.failures) == (1, 0)
    wait_until(lambda: len(cluster.tasks(job)) == 1, what="the end of the task on the node that is back")
    assert cluster.tasks(job)[0].node == "plain"
    assert cluster.notes(job) == ["gold", "plain"]
