"""Which logical nodes a home has: `nodes.json`, written by `shoal up`, read by server and agents.

A declaration says how much its node may promise. Several on one machine may promise more than there
is: that is how gangs and preemption are tried on a laptop.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from shoal import statefiles
from shoal.cluster.base import NodeState
from shoal.cluster.local.gpus import gpu_ids
from shoal.cluster.local.home import Home
from shoal.objects import codec
from shoal.objects.errors import Invalid, Problem
from shoal.objects.meta import Part
from shoal.objects.node import Capacity, Taint
from shoal.objects.quantities import Bytes, CpuMillis, QuantityError

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HINT = "give a list of nodes, each with a name"


_MOST_GPUS = 64
"""Declared devices of one node."""
_V1_UNLIMITED_BYTES = 1 << 60


class NodeDecl(Part, frozen=True, kw_only=True):
    """One logical node."""

    name: str
    cpu: CpuMillis
    memory: Bytes
    gpus: tuple[str, ...] = ()
    """Device ids."""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    """It takes no new tasks."""
    reserved: Capacity = Capacity()
    """Kept for programs outside Shoal."""

    @property
    def capacity(self) -> Capacity:
        """What it can hold."""
        return Capacity(cpu=self.cpu, memory=self.memory, gpus=self.gpus)

    @property
    def available(self) -> Capacity:
        """What tasks of Shoal can hold."""
        return Capacity(
            cpu=CpuMillis(max(0, self.cpu - self.reserved.cpu)),
            memory=Bytes(max(0, self.memory - self.reserved.memory)),
            gpus=tuple(gpu for gpu in self.gpus if gpu not in self.reserved.gpus),
        )

    def state(self, agent: NodeState | None, message: str) -> NodeState:
        """The node as its agent describes it (None: it does not answer), with what is declared now."""
        known = agent or NodeState(
            name=self.name,
            ready=False,
            capacity=self.capacity,
            message=message or "its agent does not answer",
        )
        return msgspec.structs.replace(
            known,
            labels=self.labels,
            taints=self.taints,
            unschedulable=self.unschedulable,
            foreign=self.reserved,
        )


class _Nodes(Part, frozen=True, kw_only=True):
    nodes: tuple[NodeDecl, ...]
    by_default: bool = False
    """True: not declared by a user; it is what the machine was then."""


def declare(
    count: int = 1, *, cpu: CpuMillis | None = None, memory: Bytes | None = None
) -> tuple[NodeDecl, ...]:
    """`count` nodes that share this machine: each has `cpu` and `memory` where given, and otherwise
    an equal part. GPUs are dealt out in turn. One node is called `local`, more `local-0`, `local-1` ...
    """
    gpus = gpu_ids()
    each_cpu = CpuMillis(cpu_millis() // count) if cpu is None else cpu
    each_memory = Bytes(memory_bytes() // count) if memory is None else memory
    return tuple(
        NodeDecl(
            name="local" if count == 1 else f"local-{index}",
            cpu=each_cpu,
            memory=each_memory,
            gpus=gpus[index::count],
        )
        for index in range(count)
    )


def parse(document: Any) -> tuple[NodeDecl, ...]:  # Any: what a YAML or JSON file holds
    """The nodes that a file declares: a list, or a mapping with the list under `nodes`. Only `name`
    must be given; cores and memory are otherwise the machine's. `gpus` is a list of device ids, or a
    number: so many devices that do not exist, to try scheduling with.

    Raises:
        Invalid: with everything that is wrong.
    """
    if isinstance(document, list):
        document = {"nodes": document}  # pyright: ignore[reportUnknownVariableType]
    try:
        items = msgspec.convert(document, dict[str, list[dict[str, Any]]]).get("nodes")
    except msgspec.ValidationError as error:
        raise Invalid(f"the file does not declare nodes: {error}", hint=_HINT) from error
    if not items:
        raise Invalid("the file declares no nodes", hint=_HINT)
    problems: list[Problem] = []
    nodes: list[NodeDecl] = []
    own = declare()[0]
    for place, item in enumerate(items):
        where = f"nodes[{place}]"
        try:
            given: dict[str, Any] = {"cpu": own.cpu.text(), "memory": own.memory.text(), **item}
            count = given.get("gpus")
            if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MOST_GPUS:
                given["gpus"] = [f"{given.get('name')}-gpu{number}" for number in range(count)]
            unknown = sorted(set(given) - set(NodeDecl.__struct_encode_fields__))
            problems += [Problem(f"{where}.{name}", "is not a field of a node") for name in unknown]
            nodes.append(codec.decode(msgspec.json.encode(given), NodeDecl))
        except (msgspec.MsgspecError, QuantityError) as error:
            problems.append(Problem(where, str(error)))
    names = [node.name for node in nodes]
    problems += [
        Problem("nodes", f"the name {name!r} is not lower-case letters, digits and dashes")
        for name in names
        if not _NAME.fullmatch(name)
    ]
    problems += [Problem("nodes", f"{n!r} is declared twice") for n in _repeated(names)]
    devices = [gpu for node in nodes for gpu in node.gpus]
    problems += [Problem("nodes", f"the GPU {d!r} is given to two nodes") for d in _repeated(devices)]
    if problems:
        raise Invalid("the nodes cannot be declared so", tuple(problems))
    return tuple(nodes)


def load(home: Home) -> tuple[NodeDecl, ...]:
    """The declared nodes; none before the first `shoal up` or `run`."""
    found = _read(home)
    return () if found is None else found.nodes


def is_default(home: Home) -> bool:
    """True when no user ever declared nodes."""
    found = _read(home)
    return found is None or found.by_default


def save(home: Home, nodes: Iterable[NodeDecl], *, by_default: bool = False) -> None:
    """Declare these nodes, and no others."""
    declared = _Nodes(nodes=tuple(nodes), by_default=by_default)
    document = msgspec.json.format(codec.encode(declared), indent=2) + b"\n"
    statefiles.write(home.nodes_json, document, copy=_copy(home))


def _read(home: Home) -> _Nodes | None:
    """What is declared. A file that is damaged is put aside, and the copy of the last declaration takes
    its place: a mistake in an edited file, or a bad disk, takes no node away."""

    def decode(document: bytes) -> _Nodes:
        return codec.decode(document, _Nodes)

    return statefiles.read(home.nodes_json, decode, _log.warning, copy=_copy(home))


def _copy(home: Home) -> Path:
    return home.run / "nodes.json"


def _repeated(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def cpu_millis(root: Path = Path("/")) -> int:
    """Thousandths of a core: the affinity of this process, or its group's quota where less."""
    affinity = hasattr(os, "sched_getaffinity")
    millis = 1000 * (len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1)
    for group in _own_groups(root, "cpu"):
        quota = _quota(group)
        if quota is not None:
            millis = min(millis, max(1, int(quota * 1000)))
    return millis


def memory_bytes(root: Path = Path("/")) -> int:
    """The machine's memory, or its group's limit where less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in _own_groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _number(group / name)
            if limit is not None and limit < _V1_UNLIMITED_BYTES:
                total = min(total, limit)
    return total


def _own_groups(root: Path, controller: str) -> list[Path]:
    """This process's control group of that controller and its ancestors, v2 and v1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif controller in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / controllers, root / "sys/fs/cgroup" / controller]
        else:
            continue
        for mount in mounts:
            inner = mount / path.strip("/")
            # inside a container the path may be the host's: then the mount itself is the group
            found = inner if inner.is_dir() else mount
            folders += [found, *(p for p in found.parents if p.is_relative_to(mount))]
    return folders


def _quota(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    quota_us = _number(group / "cpu.cfs_quota_us")
    period_us = _number(group / "cpu.cfs_period_us")
    if quota_us is None or not period_us or quota_us <= 0:
        return None
    return quota_us / period_us


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
