"""A machine, or a part of one, that runs tasks. Cluster-wide.

People write labels, taints, `unschedulable` and `lost`; what the node can hold and whether it answers
is observed.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from shoal.objects.meta import Condition, Object, Part, Stamp
from shoal.objects.quantities import Bytes, CpuMillis

__all__ = ["Capacity", "Node", "NodeSpec", "NodeStatus", "Taint"]


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


class NodeStatus(Part, frozen=True, kw_only=True):
    """Written by the node controller."""

    capacity: Capacity = Capacity()
    conditions: tuple[Condition, ...] = ()
    """`Ready`, and one per isolation that the node can give."""
    address: str = ""
    seen: Stamp = 0.0
    """When its readiness last changed."""
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
