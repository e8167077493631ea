"""What people may write of metadata, and that the rest is the server's."""

from typing import Any

import pytest

from shoal.objects import codec
from shoal.objects.errors import Conflict
from shoal.objects.kinds import JOB, NODE, QUEUE, Kind
from shoal.objects.node import Node
from shoal.objects.queue import Queue
from tests.scenarios.fields import shows
from tests.scenarios.standing import Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

STAY = "exec sleep 60"
ON_GOLD = {"nodeSelector": {"disk": "ssd"}}


@shows(JOB, "metadata.name", "metadata.namespace")
def test_jobs_of_two_namespaces_may_bear_one_name(cluster: Standing) -> None:
    script = 'echo "$SHOAL_NAMESPACE/$SHOAL_JOB" >> $SHOAL_OUTPUT/notes'
    jobs = [
        cluster.job(role(script), metadata={"name": "same", "namespace": namespace})
        for namespace in ("team-a", "team-b")
    ]
    for job in jobs:
        assert cluster.finished(job).status.phase == "Succeeded"
    assert [cluster.notes(job) for job in jobs] == [["team-a/same"], ["team-b/same"]]
    first, second = map(cluster.output, jobs)
    assert first != second


@shows(JOB, "metadata.labels")
@shows(QUEUE, "metadata.name", "metadata.namespace", "metadata.labels")
def test_labels_select_what_is_listed(cluster: Standing) -> None:
    metadata = {"name": "labelled", "namespace": "ignored", "labels": {"team": "a"}}
    queue = cluster.create(QUEUE, {"metadata": metadata})
    assert queue.metadata.namespace == "", "queues belong to the whole cluster"
    job = cluster.job(role(STAY), queue="labelled", metadata={"labels": {"team": "a", "run": "1"}})
    cluster.job(role(STAY), queue="labelled", metadata={"labels": {"team": "b"}})
    cluster.running(job)
    assert listed(cluster, JOB, "team=a,run") == [job.metadata.name]
    assert listed(cluster, QUEUE, "team=a") == ["labelled"]
    assert listed(cluster, QUEUE, "team=b") == []


@shows(NODE, "metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations")
@shows(JOB, "metadata.annotations")
@shows(QUEUE, "metadata.annotations")
def test_annotations_are_kept_beside_a_running_job(cluster: Standing) -> None:
    note = {"example.com/why": "x" * 1000}
    job = cluster.job(role(STAY), metadata={"annotations": note})
    cluster.create(QUEUE, {"metadata": {"name": "noted", "annotations": note}})
    cluster.running(job)
    write(cluster, "gold", namespace="ignored", labels={"rack": "7"}, annotations=note)
    try:
        assert listed(cluster, NODE, "rack=7") == ["gold"]
        for kind, name in ((JOB, job.metadata.name), (QUEUE, "noted"), (NODE, "gold")):
            there = cluster.client.record(kind, "default" if kind is JOB else "", name).object
            assert there.metadata.annotations["example.com/why"] == "x" * 1000
            assert there.metadata.namespace == ("default" if kind is JOB else "")
        assert cluster.look(job).status.phase == "Running"
    finally:
        write(cluster, "gold", labels={}, annotations={})


@shows(JOB, "metadata.finalizers")
@shows(QUEUE, "metadata.finalizers")
def test_a_finalizer_keeps_a_deleted_object_until_it_is_taken_away(cluster: Standing) -> None:
    held = {"finalizers": ["example.com/archive"]}
    cluster.create(QUEUE, {"metadata": {"name": "held", **held}})
    job = cluster.job(role(STAY), metadata=held)
    cluster.running(job)
    for kind, namespace, name in ((JOB, "default", job.metadata.name), (QUEUE, "", "held")):
        cluster.client.delete(kind, namespace, name)
    stopped = cluster.until(job, lambda j: j.metadata.finalizers == ("example.com/archive",))
    assert stopped.metadata.deleted
    assert not cluster.tasks(job), "its tasks are stopped all the same"
    assert cluster.client.get(Queue, "", "held").metadata.deleted
    cluster.clear()


@shows(JOB, "metadata.owners[].kind", "metadata.owners[].name", "metadata.owners[].uid")
@shows(QUEUE, "metadata.owners[].kind", "metadata.owners[].name", "metadata.owners[].uid")
def test_what_an_object_owns_goes_with_it(cluster: Standing) -> None:
    owner = cluster.job(role(STAY))
    owners = [{"kind": "Job", "name": owner.metadata.name, "uid": owner.metadata.uid}]
    owned = cluster.job(role(STAY), metadata={"owners": owners})
    queue = cluster.queue()
    of_queue = [{"kind": "Queue", "name": queue.metadata.name, "uid": queue.metadata.uid}]
    cluster.create(QUEUE, {"metadata": {"name": "owned", "owners": of_queue}})
    cluster.running(owned)
    cluster.client.delete(JOB, "default", owner.metadata.name)
    cluster.client.delete(QUEUE, "", queue.metadata.name)
    cluster.until_gone(JOB, "default", owned.metadata.name)
    cluster.until_gone(QUEUE, "", "owned")
    with pytest.raises(Conflict):
        cluster.job(role(STAY), metadata={"owners": owners})


@shows(NODE, "metadata.finalizers")
def test_a_node_that_is_being_deleted_takes_nothing_new(cluster: Standing) -> None:
    there = cluster.job(role(STAY, **ON_GOLD))
    cluster.running(there)
    write(cluster, "gold", finalizers=["example.com/inventory"])
    cluster.client.delete(NODE, "", "gold")
    waits = cluster.job(role("true", **ON_GOLD))
    assert cluster.waiting(waits) == "WaitingForNode"
    assert cluster.look(there).status.phase == "Running"
    write(cluster, "gold", finalizers=[])
    assert cluster.finished(waits).status.phase == "Succeeded", "its agent is there, so it is back"


@shows(NODE, "metadata.owners[].kind", "metadata.owners[].name", "metadata.owners[].uid")
def test_a_node_goes_with_its_owner_and_is_back_for_its_agent_is_there(cluster: Standing) -> None:
    queue = cluster.queue()
    owner = {"kind": "Queue", "name": queue.metadata.name, "uid": queue.metadata.uid}
    before = write(cluster, "gold", owners=[owner])
    cluster.client.delete(QUEUE, "", queue.metadata.name)
    after = cluster.client.wait(
        Node,
        "",
        "gold",
        lambda node: node is not None and node.metadata.uid != before.metadata.uid,
        45.0,
    )
    assert after is not None
    assert after.metadata.owners == ()
    job = cluster.job(role("true", **ON_GOLD))
    assert cluster.finished(job).status.phase == "Succeeded"


def test_what_the_server_stamps_nobody_else_writes(cluster: Standing) -> None:
    claimed = {
        "uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": "999", "generation": 7,
        "created": 1.0, "deleted": 2.0, "submitter": "somebody-else",
    }  # fmt: skip
    job = cluster.job(role("true"), metadata=claimed)
    ended = cluster.finished(job).metadata
    assert ended.uid not in ("", claimed["uid"])
    assert (ended.generation, ended.deleted) == (1, 0.0)
    assert ended.created > 1e9
    assert ended.submitter not in ("", "somebody-else")
    assert ended.resource_version != job.metadata.resource_version
    with pytest.raises(Conflict):
        cluster.client.update(job)


def write(cluster: Standing, node: str, **metadata: Any) -> Node:
    """Change metadata of a node."""
    cluster.written.append((NODE, {"metadata": {"name": node, **metadata}}))

    def change(there: Node) -> Node:
        document = codec.builtins(there)
        document["metadata"] |= metadata
        return codec.convert(document, Node)

    return cluster.client.edit(Node, "", node, change)


def listed(cluster: Standing, kind: Kind, selector: str) -> list[str]:
    return [r.object.metadata.name for r in cluster.client.list(kind, selector=selector).records]
