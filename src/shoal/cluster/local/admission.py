"""Whether a node can promise room to a group: pure arithmetic over what it has promised already.

The node is the last judge. It counts what the ledger says, not what a scheduler believes, and device
ids one by one, so two schedulers, or one that is behind, can never fill a node twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.cluster.base import Refused
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import TaskSpec

__all__ = ["check"]

_WHOLE = 1000
"""Thousandths of a device."""


def check(
    node: str,
    capacity: Capacity,
    held: Iterable[TaskSpec],
    wanted: Iterable[TaskSpec],
    strict_refusal: str = "",
) -> None:
    """Return if the node has room for all of `wanted` beside `held`. `strict_refusal` says why the
    node cannot isolate strictly; empty when it can.

    Raises:
        Refused: it has not; reasons NodeMismatch, IsolationUnavailable, OutOfCpu, OutOfMemory,
            DeviceTaken.
    """
    cpu = memory = 0
    taken: dict[str, int] = {}
    owners: dict[str, str] = {}

    def take(device: str, spec: TaskSpec) -> None:
        taken[device] = taken.get(device, 0) + spec.placement.thousandths
        owners[device] = spec.name

    for spec in held:
        cpu += int(spec.cpu)
        memory += int(spec.memory or 0)
        for device in spec.placement.devices:
            take(device, spec)
    for spec in wanted:
        if spec.placement.node != node:
            raise Refused(
                node, "NodeMismatch", f"task {spec.name} is for {spec.placement.node}, not {node}"
            )
        if spec.isolation == "strict" and strict_refusal:
            raise Refused(
                node,
                "IsolationUnavailable",
                f"node {node} cannot isolate task {spec.name} strictly: {strict_refusal}",
            )
        cpu += int(spec.cpu)
        memory += int(spec.memory or 0)
        if cpu > int(capacity.cpu):
            raise Refused(
                node,
                "OutOfCpu",
                f"node {node} has {capacity.cpu.text()} cores, and with task {spec.name} "
                f"{CpuMillis(cpu).text()} would be promised",
            )
        if memory > int(capacity.memory):
            raise Refused(
                node,
                "OutOfMemory",
                f"node {node} has {capacity.memory.text()} of memory, and with task {spec.name} "
                f"{Bytes(memory).text()} would be promised",
            )
        for device in spec.placement.devices:
            if device not in capacity.gpus:
                raise Refused(node, "DeviceTaken", f"node {node} has no device {device}")
            if taken.get(device, 0) + spec.placement.thousandths > _WHOLE:
                raise Refused(
                    node, "DeviceTaken", f"device {device} of {node} is task {owners[device]}'s"
                )
            take(device, spec)
