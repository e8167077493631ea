"""Rows as arrays: which column a resource is, which row a node or queue, which mask a selector.

Nodes have a column for each resource that some node has or some task asks for; GPUs are slots. In
queues GPUs are a column too, counted whole, and the last column counts jobs: of those there is no end
in the cluster, but there may be a limit in a queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from shoal.objects.job import Toleration
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role
from shoal.schedule.placing.asks import WHOLE
from shoal.schedule.placing.room import Nodes
from shoal.schedule.placing.topology import Topology
from shoal.schedule.shares.quotas import Quotas, quotas
from shoal.schedule.shares.tree import Tree, tree
from shoal.schedule.taints import tolerates

__all__ = ["GPU", "JOBS", "Columns"]

GPU = "gpu"
JOBS = "jobs"

Floats = NDArray[np.float64]
_Suits = tuple[tuple[tuple[str, str], ...], tuple[Toleration, ...], tuple[str, ...]]


class Columns:
    """Of one cluster. Raises ValueError, naming it, for a queue that there is not, and what `tree` and
    `quotas` refuse."""

    def __init__(self, cluster: Cluster) -> None:
        self.resources = _resources(cluster)
        self._known = frozenset(self.resources)
        self.names = (*self.resources, GPU, JOBS)
        """Of the columns of queues."""
        self.node_at = {node.name: at for at, node in enumerate(cluster.nodes)}
        self.queue_at = {queue.name: at for at, queue in enumerate(cluster.queues)}
        self.levels = cluster.levels
        self._rows = cluster.nodes
        self._suits: dict[_Suits, int] = {}
        for role in _roles(cluster):
            self.suits_of(role)
        self.nodes = self._nodes()
        self.tree = self._tree(cluster.queues)
        self.quotas = self._quotas(cluster.queues)
        self.silent = {node.name for node in cluster.nodes if not node.ready}
        """Nodes that do not answer."""
        self.measure(cluster)
        self.user_caps = np.array(
            [
                self.vector({**queue.user_limit, **_jobs(queue.user_jobs)}, missing=np.inf)
                for queue in cluster.queues
            ]
        ).reshape(len(cluster.queues), len(self.names))

    def measure(self, cluster: Cluster) -> None:
        """What there is of everything, with these jobs."""
        self.total = self._total(sorted(cluster.jobs, key=lambda job: job.name) if self.silent else ())
        """Of nodes that answer, and what is in use on others, by column of queues; of jobs there is no
        end."""
        self.capacity = self._measured(cluster.queues)
        """What shares are measured in: if queues name some resources and not others, those others are as
        good as endless, and nodes alone bound them."""

    def knows(self, job: Job) -> bool:
        """Whether there are columns and masks for what it asks for."""
        return all(
            _key(role) in self._suits and all(name in self._known for name in role.amounts)
            for role in job.roles
        )

    def suits_of(self, role: Role) -> int:
        """Which mask says on what nodes the role may stand."""
        return self._suits.setdefault(_key(role), len(self._suits))

    def level(self, name: str) -> int | None:
        """Of the topology; `node` is the last."""
        if not name:
            return None
        return (*self.levels, "node").index(name)

    def vector(self, amounts: Mapping[str, float], missing: float = 0.0) -> list[float]:
        """By column of queues."""
        return [float(amounts.get(name, missing)) for name in self.names]

    def _measured(self, queues: Sequence[Queue]) -> Floats:
        named = {name for queue in queues for each in (queue.nominal, queue.guaranteed) for name in each}
        unnamed = [bool(named) and name not in named for name in self.names]
        return np.where(unnamed, np.inf, self.total)

    def _nodes(self) -> Nodes:
        most = max((node.gpus for node in self._rows), default=0)
        total = np.zeros((len(self._rows), len(self.resources)), dtype=np.int64)
        slots = np.full((len(self._rows), most), -1, dtype=np.int64)
        for at, node in enumerate(self._rows):
            total[at] = [node.amounts.get(name, 0) for name in self.resources]
            slots[at, : node.gpus] = WHOLE
        masks = [[_suits(node, key) for node in self._rows] for key in self._suits]
        suits = np.array(masks, dtype=np.bool_).reshape(len(masks), len(self._rows))
        return Nodes(total, slots, Topology(self._domains()), suits)

    def all_nodes(self) -> Nodes:
        """With those that do not answer, or take nothing, for now."""
        there = np.array([node.ready and node.schedulable for node in self._rows], dtype=np.bool_)
        if there.all():
            return self.nodes
        rows = [
            _suits(msgspec.structs.replace(node, ready=True, schedulable=True), key)
            for key in self._suits
            for node in self._rows
        ]
        suits = np.array(rows, dtype=np.bool_).reshape(self.nodes.suits.shape)
        return Nodes(self.nodes.total, self.nodes.slots, self.nodes.topology, suits)

    def _domains(self) -> NDArray[np.int64]:
        """A domain is told from one of the same name in another domain of the level above."""
        found = np.full((len(self.levels), len(self._rows)), -1, dtype=np.int64)
        for level in range(len(self.levels)):
            ids: dict[tuple[str, ...], int] = {}
            for at, node in enumerate(self._rows):
                path = tuple(node.labels.get(name, "") for name in self.levels[: level + 1])
                if path[-1]:
                    found[level, at] = ids.setdefault(path, len(ids))
        return found

    def _tree(self, queues: Sequence[Queue]) -> Tree:
        for queue in queues:
            if queue.parent and queue.parent not in self.queue_at:
                raise ValueError(f"queue {queue.name}: there is no queue {queue.parent} above it")
        return tree([self.queue_at[queue.parent] if queue.parent else -1 for queue in queues])

    def _quotas(self, queues: Sequence[Queue]) -> Quotas:
        def rows(all_of: Iterable[Mapping[str, float]], missing: float) -> Floats:
            listed = [self.vector(each, missing) for each in all_of]
            return np.array(listed).reshape(len(queues), len(self.names))

        limits = [{**queue.limit, **_jobs(queue.jobs)} for queue in queues]
        return quotas(
            self.tree,
            nominal=rows((queue.nominal for queue in queues), 0.0),
            guaranteed=rows((queue.guaranteed for queue in queues), 0.0),
            limit=rows(limits, np.inf),
            borrowing=rows((queue.borrowing for queue in queues), np.inf),
            lending=rows((queue.lending for queue in queues), np.inf),
            weight=np.array([queue.weight for queue in queues]),
            priority=np.array([queue.priority for queue in queues], dtype=np.int64),
            fenced=[at for at, queue in enumerate(queues) if queue.fenced],
        )

    def _total(self, jobs: Sequence[Job]) -> Floats:
        there = np.array([node.ready for node in self._rows], dtype=np.bool_)
        total = self.nodes.total[there].sum(axis=0)
        gpus = (self.nodes.slots[there] == WHOLE).sum()
        found = np.array([*total.tolist(), gpus, np.inf], dtype=np.float64)
        for job in jobs:
            roles = {role.name: role for role in job.roles}
            for task in job.tasks:
                if task.node in self.silent:
                    role = roles[task.role]
                    gpu = role.gpus + role.share / 1000
                    found += np.array(self.vector({**role.amounts, GPU: gpu}))
        return found


def _resources(cluster: Cluster) -> tuple[str, ...]:
    named = {name for node in cluster.nodes for name in node.amounts}
    named |= {name for role in _roles(cluster) for name in role.amounts}
    return tuple(sorted(named))


def _roles(cluster: Cluster) -> Iterable[Role]:
    """Of all jobs, in their order; what many have in common comes once."""
    return {id(role): role for job in cluster.jobs for role in job.roles}.values()


def _key(role: Role) -> _Suits:
    selector = tuple(sorted(role.selector.items())) if role.selector else ()
    return selector, role.tolerations, role.avoid


def _suits(node: Node, key: _Suits) -> bool:
    selector, tolerations, avoid = key
    if not (node.ready and node.schedulable) or node.name in avoid:
        return False
    if any(node.labels.get(name) != value for name, value in selector):
        return False
    return all(tolerates(tolerations, taint) for taint in node.taints)


def _jobs(most: int | None) -> dict[str, float]:
    return {} if most is None else {JOBS: float(most)}
