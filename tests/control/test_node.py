from __future__ import annotations

import msgspec

from shoal.cluster.base import NodeState
from shoal.control.node import node_status
from shoal.control.rows import node_row
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity, Node, NodeSpec, Taint
from shoal.objects.quantities import CpuMillis
from shoal.store.base import SYSTEM
from tests.control.world import World, capacity, role


def conditions(node: Node) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in node.status.conditions}


def test_every_node_of_the_cluster_gets_an_object_with_its_own_labels():
    world = World()
    world.cluster._nodes["a"].labels = {"zone": "x"}
    world.run(0.5)
    node = world.node("a")
    assert node.spec == NodeSpec(labels={"zone": "x"})
    assert (node.status.capacity, node.status.address) == (capacity(), "127.0.0.1")
    assert conditions(node) == {"Ready": ("True", "Answers")}


def test_what_people_write_stays():
    world = World()
    mine = NodeSpec(labels={"mine": "1"}, taints=(Taint(key="k"),), unschedulable=True)
    world.store.create(Node(metadata=Metadata(name="a", namespace=""), spec=mine), actor=SYSTEM)
    world.cluster._nodes["a"].labels = {"zone": "x"}
    world.run(0.5)
    labels = {"mine": "1", "zone": "x"}
    assert world.node("a").spec == msgspec.structs.replace(mine, labels=labels)
    assert conditions(world.node("a"))["Ready"] == ("True", "Answers")


def test_what_the_cluster_reports_anew_is_followed():
    world = World()
    own, other = Taint(key="gpu"), Taint(key="spot", value="yes")
    world.cluster.declare("a", labels={"zone": "x", "rack": "r1"}, taints=(own,))
    world.run(0.5)
    assert world.node("a").spec == NodeSpec(labels={"zone": "x", "rack": "r1"}, taints=(own,))
    node = world.node("a")
    mine = Taint(key="mine")
    spec = msgspec.structs.replace(
        node.spec, labels={"rack": "r1", "zone": "edited", "team": "b"}, taints=(own, mine)
    )
    world.store.update(msgspec.structs.replace(node, spec=spec), actor=SYSTEM)
    world.run(0.5)
    assert world.node("a").spec == spec, "an edit stays while the report is the same"

    used = Capacity(cpu=CpuMillis(1000))
    world.cluster.declare(
        "a", labels={"zone": "x", "rack": "r2"}, taints=(other,), unschedulable=True, foreign=used
    )
    world.run(0.5)
    node = world.node("a")
    assert node.spec.labels == {"rack": "r2", "zone": "edited", "team": "b"}
    assert node.spec.taints == (mine, other)
    assert node.spec.unschedulable
    assert node.status.capacity.cpu == capacity().cpu - 1000
    row = node_row(node)
    assert (row.labels["rack"], row.schedulable) == ("r2", False)

    world.cluster.declare("a", labels={}, taints=(), unschedulable=False, foreign=Capacity())
    world.run(0.5)
    node = world.node("a")
    assert node.spec == NodeSpec(labels={"zone": "edited", "team": "b"}, taints=(mine,))
    assert node.status.capacity == capacity()


def test_a_silent_node_is_not_ready_and_keeps_its_capacity():
    world = World()
    world.run(0.5)
    seen = world.node("a").status.seen
    world.cluster.silence("a")
    world.run(0.5)
    node = world.node("a")
    assert conditions(node)["Ready"] == ("False", "Silent")
    assert node.status.capacity == capacity()
    assert node.status.seen > seen
    world.cluster.silence("a", False)
    world.run(0.5)
    assert conditions(world.node("a"))["Ready"] == ("True", "Answers")


def test_a_node_that_the_cluster_no_longer_names_is_not_ready():
    world = World()
    world.run(0.5)
    world.cluster.remove("b")
    world.run(1.5)
    assert conditions(world.node("b"))["Ready"] == ("False", "NotListed")
    assert world.node("b").status.capacity == capacity()


def test_a_deleted_node_that_is_there_comes_back():
    world = World()
    world.run(0.5)
    world.nodes.delete(world.nodes.get(("", "a")))
    world.run(1.5)
    assert conditions(world.node("a"))["Ready"] == ("True", "Answers")


def test_isolations_are_conditions_and_stamps_move_only_with_what_they_stamp():
    node = Node(metadata=Metadata(name="a", namespace="", generation=1))
    state = NodeState(
        name="a",
        ready=True,
        capacity=capacity(),
        isolations={"memory": "enforced", "network": "no user namespaces here"},
    )
    first = node_status(node, state, 100.0)
    got = {c.type: (c.status, c.reason, c.message) for c in first.conditions}
    assert got == {
        "Ready": ("True", "Answers", ""),
        "IsolationMemory": ("True", "Enforced", ""),
        "IsolationNetwork": ("False", "NotEnforced", "no user namespaces here"),
    }
    node = msgspec.structs.replace(node, status=first)
    assert node_status(node, state, 200.0) == first
    silent = node_status(node, msgspec.structs.replace(state, ready=False, message="gone"), 300.0)
    assert [c.changed for c in silent.conditions] == [300.0, 100.0, 100.0]
    assert (silent.conditions[0].message, silent.seen) == ("gone", 300.0)


def test_nothing_is_written_while_nothing_changes():
    world = World()
    world.run(1)
    before = world.node("a").metadata.resource_version
    world.run(20)
    assert world.node("a").metadata.resource_version == before


def test_a_job_that_waits_for_a_node_goes_on_once_the_node_is_ready_again():
    """The node is ready only when its tasks are known, so that a start there can follow at once."""
    world = World({"a": capacity()})
    world.run(0.5)
    world.submit("early", role(1))
    world.run(0.5)
    world.cluster.silence("a")
    world.run(1.5)
    assert conditions(world.node("a"))["Ready"] == ("False", "Silent")
    assert world.job("early").status.reason == "WaitingForNode"
    world.edit("early", suspend=True)
    world.run(1.5)
    world.edit("early", suspend=False)
    world.cluster.silence("a", False)
    world.run(2.5)
    assert conditions(world.node("a"))["Ready"] == ("True", "Answers")
    assert world.job("early").status.phase == "Running"


def test_what_needs_a_person_is_an_event_when_it_is_new() -> None:
    world = World()
    world.run(0.5)
    world.cluster.declare("a", problems={"StateDamaged": "ledger.db is damaged"})
    world.run(0.5)
    assert conditions(world.node("a"))["StateDamaged"] == ("True", "Found")
    both = {"StateDamaged": "ledger.db is damaged; launch.json is damaged", "CleanupFailed": "a folder"}
    world.cluster.declare("a", problems=both, labels={"other": "1"})
    world.run(0.5)
    world.cluster.declare("a", labels={"other": "2"})
    world.run(0.5)
    assert world.diary.said == {
        ("a", "StateDamaged"): ["ledger.db is damaged", "launch.json is damaged"],
        ("a", "CleanupFailed"): ["a folder"],
    }
