"""What a node can promise to a group of tasks: cores, memory, devices, and ports.

The node is the last judge. It counts what the ledger says, not what a scheduler believes, and device
ids one by one, so two schedulers, or one that is behind, can never fill a node twice.

Ports on this machine, leased to the replicas of jobs.

A lease belongs to (job uid, role, index, port name) and is kept while the job exists, so a replica that
starts again is found where it was. When ports run out, the leases of replicas that do not run end.

**Blocks.** Agents of several homes and users share the machine's ports, so an agent leases only from
blocks that it has claimed: it has bound the block's first port, which no other process can then do. Each
supervisor inherits the claims on its task's ports; thus a claim outlives the agent by as long as any
task needs it, and an agent that comes back either gets its claim again, or leases elsewhere. Blocks lie
below the kernel's range for outgoing connections, which would otherwise take ports at random.

**Bounds.** A job has at most `JOB_PORTS` on a node, and a node claims at most a quarter of the blocks,
so that neither takes all of the machine's ports. Leases end with their job, and a block without
leases is given up.

**Strangers.** A port is tried by binding it before it is leased or used again; one in use is passed
over. A task that binds ports it was not given is contained only by `isolation: strict`.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from shoal.cluster.base import Refused
from shoal.cluster.local.ledger import Ledger
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import TaskSpec

_WHOLE = 1000
"""Thousandths of a device."""
RENDEZVOUS = "rendezvous"
"""The port that every task has, whatever it asks for."""

BLOCK_PORTS = 64
JOB_PORTS = 1024
"""That one job's tasks may have leased on one node at once."""

_PART_OF_BLOCKS = 4
_FIRST_PORT = 20_000
_END_PORT = 32_768
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


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


class Ports:
    """The leases of one node. Changes are staged in its ledger. `seed` spreads agents over the
    blocks, so that they seldom try the same."""

    def __init__(self, node: str, ledger: Ledger, seed: str) -> None:
        self._node = node
        self._ledger = ledger
        self._blocks = _blocks()
        self._next_block = zlib.crc32(seed.encode()) % len(self._blocks)
        self._claims: dict[int, socket.socket] = {}
        """First port of a block to the socket that claims it."""
        self._free: dict[int, None] = {}
        """Ports of claimed blocks that are not leased; the longest unused first."""
        for first in {_block_of(port) for port in ledger.leases.values()}:
            self._claim(first)

    def lease(self, spec: TaskSpec) -> dict[str, int]:
        """A port for each name that the task asks for, and the one for rendezvous.

        The numbers that it asks for are what it would use with an address of its own; tasks on one
        machine share one, so they get others, which their environment names. A strict job has a network
        of its own, which its tasks share: there index 0 of each role gets the numbers that it asks for.

        Raises:
            Refused: there is none left.
        """
        names = sorted({*spec.ports, RENDEZVOUS})
        own = spec.ports if spec.isolation == "strict" and spec.index == 0 else {}
        self._check_job(spec, len(names) - len(own))
        return {name: own.get(name) or self._lease_one(_owner(spec, name)) for name in names}

    def adopt(self, spec: TaskSpec, ports: Mapping[str, int]) -> None:
        """Record the leases of a running task after the ledger was lost."""
        own = spec.ports if spec.isolation == "strict" and spec.index == 0 else {}
        for name, port in ports.items():
            if own.get(name) != port:
                self._ledger.lease(_owner(spec, name), port)
                self._claim(_block_of(port))
                self._free.pop(port, None)

    def hold(self, ports: Iterable[int]) -> bool:
        """True when all of these that are leased lie in blocks that are ours, now."""
        return all(self._claim(first) for first in self._blocks_of(ports))

    def claims(self, ports: Iterable[int]) -> list[int]:
        """The descriptors that claim these ports, for their task's supervisor to hold."""
        firsts = sorted(self._blocks_of(ports))
        return [self._claims[first].fileno() for first in firsts if first in self._claims]

    def forget_job(self, namespace: str, job_uid: str) -> None:
        """End the job's leases."""
        prefix = f"{namespace}/{job_uid}/"
        for owner in self._of_job(prefix):
            self._end(owner)
        self._give_up_blocks()

    def refresh(self) -> None:
        """The ledger went back to an earlier state."""
        leased = set(self._ledger.leases.values())
        self._free = {
            port: None for first in self._claims for port in _ports_of(first) if port not in leased
        }

    def close(self) -> None:
        """Give the claims up, but for what supervisors hold."""
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()

    def _of_job(self, prefix: str) -> list[str]:
        return [owner for owner in self._ledger.leases if owner.startswith(prefix)]

    def _check_job(self, spec: TaskSpec, more: int) -> None:
        """Raises:
        Refused: with these the job would have too many.
        """
        prefix, own = f"{spec.namespace}/{spec.job_uid}/", f"{_replica(spec)}/"

        def held() -> int:
            return sum(not owner.startswith(own) for owner in self._of_job(prefix))

        if held() + more > JOB_PORTS:
            self._end_idle(prefix)
        if held() + more > JOB_PORTS:
            raise Refused(
                self._node,
                "PortTaken",
                f"job {spec.job} has {held()} ports on node {self._node}, and one job may have "
                f"{JOB_PORTS} there",
            )

    def _give_up_blocks(self) -> None:
        """Let others have the blocks in which nothing is leased; supervisors hold theirs themselves."""
        used = {_block_of(port) for port in self._ledger.leases.values()}
        for first in [first for first in self._claims if first not in used][1:]:  # one is kept at hand
            self._claims.pop(first).close()
            for port in _ports_of(first):
                self._free.pop(port, None)

    def _blocks_of(self, ports: Iterable[int]) -> set[int]:
        """Where the leased ones of these lie; numbers in a network of the job's own are not ours."""
        leased = set(self._ledger.leases.values())
        return {_block_of(port) for port in ports if port in leased}

    def _lease_one(self, owner: str) -> int:
        known = self._ledger.leases.get(owner)
        if known is not None:
            if self._claim(_block_of(known)) and _can_be_bound(known):
                return known
            self._end(owner)
        port = self._find()
        self._free.pop(port, None)
        self._ledger.lease(owner, port)
        return port

    def _find(self) -> int:
        for _ in range(2):
            for port in list(self._free):
                if _can_be_bound(port):
                    return port
            while self._claim_another():
                for port in list(self._free)[-(BLOCK_PORTS - 1) :]:
                    if _can_be_bound(port):
                        return port
            self._end_idle()
        raise Refused(
            self._node, "PortTaken", f"node {self._node} has no port left: all are leased or in use"
        )

    def _end_idle(self, prefix: str = "") -> None:
        busy = {_replica(record.spec) for record in self._ledger.tasks.values() if record.holds_capacity}
        for owner in self._of_job(prefix):
            if owner.rpartition("/")[0] not in busy:
                self._end(owner)

    def _end(self, owner: str) -> None:
        port = self._ledger.leases[owner]
        self._ledger.end_lease(owner)
        if _block_of(port) in self._claims:
            self._free[port] = None

    def _claim_another(self) -> bool:
        if len(self._claims) >= max(1, len(self._blocks) // _PART_OF_BLOCKS):
            return False
        for _ in self._blocks:
            first = self._blocks[self._next_block % len(self._blocks)]
            self._next_block += 1
            if first not in self._claims and self._claim(first):
                return True
        return False

    def _claim(self, first: int) -> bool:
        if first in self._claims:
            return True
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind(("127.0.0.1", first))  # without SO_REUSEADDR: one holder, and no listener
        except OSError:
            claim.close()
            return False
        self._claims[first] = claim
        leased = set(self._ledger.leases.values())
        self._free.update(dict.fromkeys(port for port in _ports_of(first) if port not in leased))
        return True


def _blocks() -> list[int]:
    """The first ports of all blocks."""
    try:
        outgoing = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        outgoing = _END_PORT
    end = outgoing if outgoing >= _FIRST_PORT + 16 * BLOCK_PORTS else _END_PORT
    return list(range(_FIRST_PORT, min(end, _END_PORT) - BLOCK_PORTS + 1, BLOCK_PORTS))


def _ports_of(first: int) -> range:
    return range(first + 1, first + BLOCK_PORTS)


def _block_of(port: int) -> int:
    return port - (port - _FIRST_PORT) % BLOCK_PORTS


def _replica(spec: TaskSpec) -> str:
    return f"{spec.namespace}/{spec.job_uid}/{spec.role}/{spec.index}"


def _owner(spec: TaskSpec, name: str) -> str:
    return f"{_replica(spec)}/{name}"


def _can_be_bound(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
