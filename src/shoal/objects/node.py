"""A machine, or a part of one, that runs tasks. Cluster-wide.

People write labels, taints, `unschedulable` and `lost`, and what the cluster reports of the first three
is merged into them; what the node can hold and whether it answers is observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Literal

import msgspec

from shoal.objects.columns import AGE, NAME, Column, rounded_bytes
from shoal.objects.kind import Kind, State, Verb
from shoal.objects.meta import Condition, Object, Part, Stamp
from shoal.objects.paths import Finding, Path
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.selectors import label_findings, label_key_problem, label_value_problem

__all__ = [
    "DRAIN",
    "NODE",
    "Capacity",
    "Node",
    "NodeSpec",
    "NodeStatus",
    "Reported",
    "Taint",
    "cordoned",
    "declared_lost",
    "drained",
]


class Taint(Part, frozen=True, kw_only=True):
    """Keeps tasks without a matching toleration away."""

    key: Annotated[str, msgspec.Meta(min_length=1)]
    """What tolerations name."""
    value: str = ""
    """What tolerations may ask for too."""
    effect: Literal["NoSchedule", "NoExecute"] = "NoSchedule"
    """NoExecute also ends tasks that run there already."""


class NodeSpec(Part, frozen=True, kw_only=True):
    """What people ask for."""

    labels: dict[str, str] = {}
    """Matched by a role's `nodeSelector`."""
    taints: tuple[Taint, ...] = ()
    """What keeps tasks away that do not tolerate it."""
    unschedulable: bool = False
    """True: nothing new starts here (`shoal cordon`)."""
    lost: bool = False
    """True: a person says that the node is gone for good; its tasks are replaced elsewhere."""


class Capacity(Part, frozen=True, kw_only=True):
    """What a node can hold."""

    cpu: CpuMillis = CpuMillis(0)
    memory: Bytes = Bytes(0)
    gpus: tuple[str, ...] = ()
    """Device ids."""


class Reported(Part, frozen=True, kw_only=True):
    """What the cluster reported of a node when its spec last followed it. Only a later difference from
    this changes the spec, so that people's own edits stay."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeStatus(Part, frozen=True, kw_only=True):
    """Written by the node controller."""

    capacity: Capacity = Capacity()
    conditions: tuple[Condition, ...] = ()
    """`Ready`, and one per isolation that the node can give."""
    address: str = ""
    seen: Stamp = 0.0
    """When its readiness last changed."""
    reported: Reported | None = None
    """Absent until the node was seen."""
    observed_generation: int = 0
    writers: dict[str, int] = {}


class Node(Object, frozen=True, kw_only=True):
    """A machine that runs tasks."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    kind: str = "Node"

    @property
    def key(self) -> tuple[str, str]:
        """See `Object.key`: no namespace, whatever the metadata says."""
        return ("", self.metadata.name)


DRAIN = Taint(key="shoal.dev/drain", effect="NoExecute")
"""What `shoal drain` puts on a node and `shoal uncordon` takes away."""


def cordoned(node: Node, unschedulable: bool) -> Node:
    """Let nothing new start there, or (False) let tasks start again; that also ends a drain."""
    taints = tuple(taint for taint in node.spec.taints if unschedulable or taint != DRAIN)
    return _with_spec(node, unschedulable=unschedulable, taints=taints)


def drained(node: Node) -> Node:
    """Let nothing new start there and move away what runs."""
    taints = node.spec.taints if DRAIN in node.spec.taints else (*node.spec.taints, DRAIN)
    return _with_spec(node, unschedulable=True, taints=taints)


def declared_lost(node: Node, gone: bool = True) -> Node:
    """Declare that the node is gone for good, so that its tasks start elsewhere; or take that back."""
    return _with_spec(node, lost=gone)


def _with_spec(node: Node, **fields: object) -> Node:
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, **fields))


def _check_status(status: NodeStatus, _spec: bytes) -> Iterable[Finding]:
    from shoal.objects.status_rules import repeated  # only where objects are stored

    return repeated(status.capacity.gpus, ("status", "capacity", "gpus"))


def _check(node: Node) -> Iterator[Finding]:
    yield from label_findings(node.spec.labels, ("spec", "labels"))
    seen: set[tuple[str, str]] = set()
    for at, taint in enumerate(node.spec.taints):
        path: Path = ("spec", "taints", at)
        if problem := label_key_problem(taint.key):
            yield Finding((*path, "key"), problem.replace("a label key", "a taint's key"))
        if problem := label_value_problem(taint.value):
            yield Finding((*path, "value"), problem.replace("a label value", "a taint's value"))
        if (taint.key, taint.effect) in seen:
            yield Finding(path, f"a taint {taint.key}:{taint.effect} is listed already")
        seen.add((taint.key, taint.effect))


def _ready(node: Node) -> Condition | None:
    return next((c for c in node.status.conditions if c.type == "Ready"), None)


def _node_status(node: Node, _now: float) -> str:
    if node.spec.lost:
        return "Lost"
    ready = _ready(node)
    word = "Ready" if ready is not None and ready.status == "True" else "NotReady"
    return f"{word},Cordoned" if node.spec.unschedulable else word


def _taints(node: Node, _now: float) -> str:
    spelt = (
        f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        for taint in node.spec.taints
    )
    return ",".join(spelt) or "-"


def _labels(node: Node, _now: float) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(node.spec.labels.items())) or "-"


def _node_message(node: Node, _now: float) -> str:
    ready = _ready(node)
    return (ready.message if ready is not None else "") or "-"


def _state(node: Node) -> State:
    ready = _ready(node)
    phase = "Lost" if node.spec.lost else "Ready" if ready and ready.status == "True" else "NotReady"
    if node.spec.unschedulable:
        phase += ", cordoned"
    if ready is None:
        return State(phase=phase, message="the node has not reported yet")
    # since when a node is declared lost is not recorded; its condition says since when it is not ready
    since = 0.0 if node.spec.lost else ready.changed
    return State(phase=phase, code=ready.reason, message=ready.message, since=since)


NODE = Kind(
    name="Node",
    plural="nodes",
    aliases=("no",),
    namespaced=False,
    struct=Node,
    status_writers={"node": ("*",)},
    check=_check,
    check_status=_check_status,
    columns=(
        NAME,
        Column("STATUS", _node_status),
        Column("CPU", lambda node, now: node.status.capacity.cpu.text()),
        Column("MEMORY", lambda node, now: rounded_bytes(node.status.capacity.memory)),
        Column("GPU", lambda node, now: str(len(node.status.capacity.gpus))),
        AGE,
        Column("TAINTS", _taints, wide=True),
        Column("LABELS", _labels, wide=True),
        Column("ADDRESS", lambda node, now: node.status.address or "-", wide=True),
        Column("MESSAGE", _node_message, wide=True),
    ),
    tasks="hosted",
    state=_state,
    verbs={
        "cordon": Verb(partial(cordoned, unschedulable=True), "cordoned", "is cordoned already"),
        "uncordon": Verb(partial(cordoned, unschedulable=False), "uncordoned", "is not cordoned"),
        "drain": Verb(drained, "is being drained", "is drained already"),
        "lost": Verb(declared_lost, "is declared lost", "is declared lost already"),
        "found": Verb(
            partial(declared_lost, gone=False), "is no longer declared lost", "was not declared lost"
        ),
    },
)
