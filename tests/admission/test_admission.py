"""What admission knows of the others: the tree of queues, levels of the topology, how large all is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from shoal.admission.admission import Admission, known_capacities
from shoal.client import Client
from shoal.objects.errors import Forbidden, Invalid
from shoal.objects.job import Dependency, Job, Resources, Role, RoleTopology, Topology
from shoal.objects.kinds import QUEUE
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity, Node, NodeSpec, NodeStatus
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Amounts, Queue, QueueSpec, Quota
from shoal.store.base import SYSTEM, allow_all
from shoal.store.memory import MemoryStore
from tests.server.harness import LiveServer, a_job

NODE = Capacity(cpu=CpuMillis(4000), memory=Bytes(2**33), gpus=("a", "b"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", levels=("block", "rack"))
    yield live
    live.close()


@pytest.fixture
def told(client: Client) -> list[str]:
    """What the server warns of, in the order of the requests."""
    sentences: list[str] = []
    client.transport.on_warning = sentences.append
    return sentences


def queue(name: str, **spec: object) -> Queue:
    return Queue(metadata=Metadata(name=name, namespace=""), spec=QueueSpec(**spec))  # type: ignore[arg-type]


def refused(client: Client, wanted: Queue) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        client.apply(wanted)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_a_queue_is_below_one_that_is_there(client: Client) -> None:
    assert refused(client, queue("vision", parent="research")) == {
        "spec.parent": "there is no queue research"
    }
    client.create(queue("research"))
    client.create(queue("vision", parent="research"))
    with pytest.raises(Invalid, match="no queue reserch; did you mean research"):
        client.create(queue("speech", parent="reserch"))


def test_queues_are_never_above_themselves(client: Client) -> None:
    client.create(queue("a"))
    client.create(queue("b", parent="a"))
    client.create(queue("c", parent="b"))
    assert refused(client, queue("a", parent="c")) == {
        "spec.parent": "the queues would be above themselves: a -> c -> b -> a"
    }
    assert client.get(Queue, "", "a").spec.parent == ""
    client.apply(queue("c", parent="a"))


def test_what_is_a_queues_own_fits_into_the_quotas_above_it(client: Client) -> None:
    client.create(queue("research", quota=Quota(gpu=4)))
    client.create(queue("vision", parent="research", nominal=Amounts(gpu=3.0)))
    assert refused(client, queue("speech", parent="research", nominal=Amounts(gpu=1.5))) == {
        "spec.nominal.gpu": "with it, queue research has 4.5 of its own, and a quota of 4"
    }
    client.create(queue("speech", parent="research", nominal=Amounts(gpu=1.0)))
    assert refused(client, queue("research", quota=Quota(gpu=3))) == {
        "spec.quota.gpu": "3 is less than what the queues below have of their own: 4"
    }


def test_a_queue_with_others_below_it_stays(client: Client) -> None:
    client.create(queue("research"))
    client.create(queue("vision", parent="research"))
    with pytest.raises(Forbidden, match="queue research is above vision") as caught:
        client.delete(QUEUE, "", "research")
    assert caught.value.hint == "delete those first, or give them another parent"
    client.delete(QUEUE, "", "vision")
    client.delete(QUEUE, "", "research")


def test_levels_that_the_cluster_does_not_have_yet_are_a_warning(
    client: Client, told: list[str]
) -> None:
    role = Role(command=("true",), topology=RoleTopology(required="node"))
    client.create(a_job("near", roles=(role,), topology=Topology(required="rack", spread="node")))
    assert told == []
    role = msgspec.structs.replace(role, topology=RoleTopology(preferred="row"))
    client.create(a_job("far", roles=(role,), topology=Topology(required="blok")))
    assert told == [
        "job far waits until there is such a level (spec.topology.required): the topology has no level "
        "blok: there are block, rack, node; did you mean block?",
        "job far waits until there is such a level (spec.roles[0].topology.preferred): the topology has "
        "no level row: there are block, rack, node",
    ]


def test_a_part_of_a_device_needs_a_device(client: Client, server: LiveServer, told: list[str]) -> None:
    server.declared = [Capacity(cpu=CpuMillis(4000), memory=Bytes(2**33))]
    job = a_job(roles=(Role(command=("true",), resources=Resources(gpu_share=0.5)),))
    client.create(job, dry_run=True)
    assert told == [
        "job train waits for a larger node: a worker asks for a part of a GPU, and no node has one"
    ]
    server.declared = [NODE]
    client.create(job)
    assert len(told) == 1


def test_a_job_larger_than_the_cluster_is_taken_and_told_so(
    client: Client, server: LiveServer, told: list[str]
) -> None:
    server.declared = [NODE, NODE]
    client.create(a_job("small", roles=(Role(command=("a",), replicas=2),)))
    assert told == []
    client.create(a_job("large", roles=(Role(command=("a",), replicas=9),)))
    assert told == [
        "job large asks for 9 cpu at least, and all nodes together have 8: it waits until there are more"
    ]
    told.clear()
    client.scale("default", "small", 12)
    assert [sentence.split(",")[0] for sentence in told] == ["job small asks for 12 cpu at least"]


def test_a_job_larger_than_its_queue_is_taken_and_told_so(client: Client, told: list[str]) -> None:
    client.create(queue("research", quota=Quota(cpu=CpuMillis(2000))))
    client.create(queue("vision", parent="research", user_limit=Quota(cpu=CpuMillis(1000))))
    client.create(a_job(queue="vision", roles=(Role(command=("a",), replicas=3),)))
    assert told == [
        "job train asks for 3 cpu at least, and a user may have 1 at most in queue vision",
        "job train asks for 3 cpu at least, and queue research may use 2 at most",
    ]


def test_a_queue_larger_than_the_cluster_is_taken_and_told_so(
    client: Client, server: LiveServer, told: list[str]
) -> None:
    server.declared = [NODE]
    client.apply(queue("research", quota=Quota(gpu=8), nominal=Amounts(gpu=2.0)), dry_run=True)
    assert told == ["queue research may use 8 GPUs, and all nodes together have 2"]
    client.apply(queue("research", nominal=Amounts(gpu=2.0)))
    told.clear()
    client.apply(queue("production", nominal=Amounts(gpu=1.0)))
    assert told == [
        "queues have 3 GPUs of their own together, and all nodes have 2: where all is wanted, each "
        "gets the same part of its own"
    ]
    told.clear()
    client.apply(queue("production", nominal=Amounts(gpu=1.0)))
    assert told == [], "nothing was changed"


def test_a_node_that_was_not_observed_yet_may_be_the_largest() -> None:
    known = Node(metadata=Metadata(name="a"), status=NodeStatus(capacity=Capacity(cpu=CpuMillis(4000))))
    fresh = Node(metadata=Metadata(name="b"))
    assert known_capacities([known]) == [known.status.capacity]
    assert known_capacities([known, fresh]) == []
    lost = msgspec.structs.replace(fresh, spec=NodeSpec(lost=True))
    assert known_capacities([known, lost]) == [known.status.capacity]


def test_the_nearest_queue_and_namespace_are_named(client: Client) -> None:
    client.create(queue("research", namespaces=("team-a", "team-b")))
    with pytest.raises(Invalid, match="there is no queue reserch; did you mean research"):
        client.create(a_job(queue="reserch"))
    with pytest.raises(Forbidden, match="queue research is not for namespace temm-a") as caught:
        client.create(a_job(namespace="temm-a", queue="research"))
    assert caught.value.hint == "it is for team-a, team-b; did you mean team-a?"


def test_labels_that_no_node_has_are_named_with_those_that_nodes_have() -> None:
    """A wrong GPU type is a warning: nodes and labels may still come."""
    nodes = [
        Node(
            metadata=Metadata(name=name, namespace=""),
            spec=NodeSpec(labels={"gpu-type": gpu, "zone": "x"}),
            status=NodeStatus(capacity=NODE),
        )
        for name, gpu in (("n0", "a100"), ("n1", "v100"))
    ]
    store = MemoryStore()
    store.create(queue("default"), actor=SYSTEM)
    admission = Admission(store, lambda: nodes, authorise=allow_all)

    def advice(**selector: str) -> list[str]:
        named = {key.replace("_", "-"): value for key, value in selector.items()}
        role = Role(command=("a",), node_selector=named)
        return admission.advice(admission.create(a_job(next(names), roles=(role,)), actor=SYSTEM))

    names = iter("abcd")
    assert advice(gpu_type="a100") == []
    assert advice(gpu_type="h100") == [
        "job b waits for a node with the label gpu-type=h100, which no node has: "
        "nodes have gpu-type=a100|v100; did you mean v100?"
    ]
    assert advice(gpu_typ="a100") == [
        "job c waits for a node with the label gpu-typ=a100, which no node has: "
        "nodes have the labels gpu-type, zone; did you mean gpu-type?"
    ]
    nodes.clear()
    assert advice(gpu_type="h100") == [], "nothing is known of nodes yet"


def test_a_job_waits_for_jobs_that_are_there(client: Client) -> None:
    def waits(name: str, *others: str) -> Job:
        job = a_job(name)
        after = tuple(Dependency(job=other) for other in others)
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, after=after))

    first = client.create(a_job("prepare"))
    made = client.create(waits("train", "prepare"))
    assert made.metadata.annotations["shoal.dev/after"] == f"prepare={first.metadata.uid}"
    assert client.apply(waits("train", "prepare")).result == "unchanged"
    with pytest.raises(Invalid) as caught:
        client.create(waits("eval", "prepar", "eval"))
    assert {problem.path: problem.message for problem in caught.value.problems} == {
        "spec.after[0].job": "there is no job prepar in namespace default; did you mean prepare?",
        "spec.after[1].job": "a job cannot wait for itself",
    }
    with pytest.raises(Invalid, match="named twice"):
        client.create(waits("eval", "prepare", "prepare"))
