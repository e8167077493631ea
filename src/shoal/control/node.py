"""The node controller: a Node object for every node of the cluster, with what it can hold and whether
it answers.

A node that is seen for the first time gets an object. Labels, taints and `unschedulable` as the cluster
reports them are merged into its spec when the report changes; what people write beside them stays, as in
a three-way merge with the report before (`status.reported`). What the node reports to need a person
(`StateDamaged`, `CleanupFailed`), and why the scheduler leaves it out (`Unusable`), becomes a condition,
and an event when it is new. A node that falls silent, or that the cluster no longer names, becomes
NotReady and stays: whether it is gone for good only a person can say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shoal import faults
from shoal.cluster.base import NodeState
from shoal.control.cache import ObjectCache, changed_fields
from shoal.control.context import ControllerContext
from shoal.control.runner import Key, Source
from shoal.objects.errors import Exists
from shoal.objects.kinds import NODE
from shoal.objects.meta import Condition, Metadata
from shoal.objects.node import Capacity, Node, NodeSpec, NodeStatus, Reported
from shoal.objects.quantities import Bytes, CpuMillis

WRITER = "node"


class NodeController:
    """See the module's docstring; one thread is enough."""

    name = "node"

    def __init__(self, context: ControllerContext) -> None:
        self._nodes: ObjectCache[Node] = context.cache(NODE)
        self._recorder = context.recorder
        self._states = context.node_states
        self._guard = context.guard

    def sources(self) -> Sequence[Source]:
        """Node objects, and the cluster's nodes."""
        return (
            Source(self._nodes, lambda old, new: [(new or old).key]),
            Source(self._states, lambda old, new: [("", (new or old).name)]),
        )

    def reconcile(self, key: Key, now: float) -> float | None:
        """Bring one node's object up to date, making it if need be."""
        state, node = self._states.get(key[1]), self._nodes.get(key)
        if node is None:
            if state is None:
                return None
            self._guard.check()
            node = self._create(key, state)
            if node is None:
                return None
        spec = node.spec if state is None else followed(node, state)
        if spec != node.spec:
            self._guard.check()
            node = self._nodes.update(msgspec.structs.replace(node, spec=spec))
            faults.point("server.node.spec.followed")
        status = node_status(node, state, now)
        fields = changed_fields(node.status, status)
        if fields:
            self._guard.check()
            if state is not None:
                for reason, message in _found(node.status, status, state):
                    self._recorder.event(node, reason, message, warning=True, at=now)
            self._nodes.patch_status(node, writer=WRITER, fields=fields)
            faults.point("server.node.status.written")
        return None

    def _create(self, key: Key, state: NodeState) -> Node | None:
        metadata = Metadata(name=state.name, namespace="")
        try:
            made = Node(metadata=metadata)
            made = msgspec.structs.replace(made, spec=followed(made, state))
            node = self._nodes.create(made)
        except Exists:
            return self._nodes.refresh(key)
        faults.point("server.node.created")
        return node


def followed(node: Node, state: NodeState) -> NodeSpec:
    """The node's spec with what the cluster reports otherwise than before. Pure."""
    spec, last = node.spec, node.status.reported
    if last is None:  # seen for the first time: what people wrote before counts
        last, labels = Reported(), {**state.labels, **spec.labels}
    else:
        labels = dict(spec.labels)
        for key in {**last.labels, **state.labels}:
            before, now = last.labels.get(key), state.labels.get(key)
            if now is not None and now != before:
                labels[key] = now
            elif now is None and labels.get(key) == before:
                labels.pop(key, None)
    gone = [taint for taint in last.taints if taint not in state.taints]
    taints = [taint for taint in spec.taints if taint not in gone]
    known = {(taint.key, taint.effect) for taint in taints}
    new = (taint for taint in state.taints if taint not in last.taints)
    taints += [taint for taint in new if (taint.key, taint.effect) not in known]
    unschedulable = spec.unschedulable
    if state.unschedulable != last.unschedulable:
        unschedulable = state.unschedulable
    return msgspec.structs.replace(
        spec, labels=labels, taints=tuple(taints), unschedulable=unschedulable
    )


def node_status(node: Node, state: NodeState | None, now: float) -> NodeStatus:
    """What the node's status is to show. Pure; stamps move only with what they stamp."""
    old = node.status
    ready = state is not None and state.ready
    if state is None:
        reason, message = "NotListed", "the cluster does not know this node"
    elif ready:
        reason, message = "Answers", ""
    else:
        reason, message = "Silent", state.message or "does not answer"
    generation = node.metadata.generation
    conditions = [_condition(old, "Ready", ready, reason, message, generation, now)]
    if state is not None:
        for name, how in sorted(state.isolations.items()):
            given = how == "enforced"
            why = ("Enforced", "") if given else ("NotEnforced", how)
            kind = f"Isolation{name.title().replace('-', '')}"
            conditions.append(_condition(old, kind, given, *why, generation, now))
        for kind, message in sorted(state.problems.items()):
            conditions.append(_condition(old, kind, True, "Found", message, generation, now))
    else:
        conditions += [condition for condition in old.conditions if condition.type != "Ready"]
    before = next((c.changed for c in old.conditions if c.type == "Ready"), 0.0)
    return NodeStatus(
        capacity=_usable(state) if state is not None and (ready or state.capacity.cpu) else old.capacity,
        conditions=tuple(conditions),
        address=state.address if state is not None else old.address,
        seen=now if conditions[0].changed != before else old.seen,
        reported=_reported(state) if state is not None else old.reported,
        observed_generation=generation,
    )


def _found(old: NodeStatus, new: NodeStatus, state: NodeState) -> Iterator[tuple[str, str]]:
    """Reason and message of what has come to need a person since the status before."""
    before = {each.type: each.message for each in old.conditions if each.status == "True"}
    for each in new.conditions:
        if each.type in state.problems and each.message != before.get(each.type):
            message = each.message.removeprefix(before.get(each.type, "")).removeprefix("; ")
            yield each.type, message


def _reported(state: NodeState) -> Reported:
    return Reported(labels=state.labels, taints=state.taints, unschedulable=state.unschedulable)


def _usable(state: NodeState) -> Capacity:
    """What Shoal may give out: the capacity less what others use."""
    whole, foreign = state.capacity, state.foreign
    return Capacity(
        cpu=CpuMillis(max(0, whole.cpu - foreign.cpu)),
        memory=Bytes(max(0, whole.memory - foreign.memory)),
        gpus=tuple(gpu for gpu in whole.gpus if gpu not in foreign.gpus),
    )


def _condition(
    old: NodeStatus, kind: str, holds: bool, reason: str, message: str, generation: int, now: float
) -> Condition:
    status = "True" if holds else "False"
    last = next((c for c in old.conditions if c.type == kind), None)
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        changed=now,
        observed_generation=generation,
    )
    if last is None or last.status != status:
        return new
    return msgspec.structs.replace(new, changed=last.changed)
