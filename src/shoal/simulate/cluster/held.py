"""What is in use: amounts and thousandths of GPUs by node, shared amounts, what queues hold (`queues`).

A task holds what its role asks for from the moment it is there until it is gone, stopping or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.schedule.cycle.rows import Cluster, Job, Node, Role, Task
from shoal.simulate.cluster.broken import Broken
from shoal.simulate.cluster.queues import JOBS, Queues

__all__ = ["Held", "role_of", "size_of"]

_WHOLE = 1000


class Held:
    """Books over the nodes and queues of a cluster; those who call keep who is there."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes: dict[str, Node] = {node.name: node for node in cluster.nodes}
        self._amounts: dict[str, dict[str, int]] = {node.name: {} for node in cluster.nodes}
        self._gpus: dict[str, list[int]] = {node.name: [0] * node.gpus for node in cluster.nodes}
        self._used: dict[str, int] = {}
        self._all: dict[str, int] = {"gpu": _WHOLE * sum(node.gpus for node in cluster.nodes)}
        for node in cluster.nodes:
            for name, amount in node.amounts.items():
                self._all[name] = self._all.get(name, 0) + amount * _WHOLE
        self._shared: dict[str, int] = {}
        self._shared_total = cluster.shared
        self.queues = Queues(cluster.queues)

    def take(self, job: Job, task: Task) -> None:
        """The task is there from now on. Raises `Broken` where there is no room for it."""
        role = role_of(job, task)
        where = f"{job.name}/{task.role}-{task.index} on {task.node}"
        node = self._nodes.get(task.node)
        if node is None:
            raise Broken(f"{where}: there is no such node")
        wanted = role.gpus or bool(role.share)
        if len(task.gpus) != wanted or len(set(task.gpus)) != wanted:
            raise Broken(f"{where} has the GPUs {list(task.gpus)}, and asks for {int(wanted)}")
        used = self._amounts[task.node]
        for name, amount in role.amounts.items():
            if used.get(name, 0) + amount > node.amounts.get(name, 0):
                free = node.amounts.get(name, 0) - used.get(name, 0)
                raise Broken(f"{where} needs {amount} {name}, and {free} is free")
        part = role.share or _WHOLE
        slots = self._gpus[task.node]
        for gpu in task.gpus:
            if not 0 <= gpu < len(slots):
                raise Broken(f"{where}: the node has no GPU {gpu}")
            if slots[gpu] + part > _WHOLE:
                raise Broken(f"{where} needs {part}/1000 of GPU {gpu}, and {slots[gpu]} are in use")
        self._change(job, role, task, +1)
        if not task.stopping:
            self.queues.stay(job, size_of(role), +1)

    def keep(self, job: Job, tasks: Iterable[Task], sign: int) -> None:
        """Slots are kept for the job, or not any more: its queue counts them as there to stay."""
        for task in tasks:
            self.queues.stay(job, size_of(role_of(job, task)), sign)

    def told_to_go(self, job: Job, task: Task) -> None:
        """The task is there still, and will not be."""
        self.queues.stay(job, size_of(role_of(job, task)), -1)

    def release(self, job: Job, task: Task) -> None:
        """The task is gone."""
        if not task.stopping:
            self.told_to_go(job, task)
        self._change(job, role_of(job, task), task, -1)

    def begin(self, job: Job) -> None:
        """The job begins to hold something, and all its licences. Raises `Broken` where they lack."""
        for name, amount in job.shared.items():
            used, total = self._shared.get(name, 0), self._shared_total.get(name, 0)
            if used + amount > total:
                raise Broken(f"{job.name} needs {amount} of {name}, and {total - used} is free")
            self._shared[name] = used + amount
        self.queues.hold(job, {JOBS: _WHOLE}, +1)

    def end(self, job: Job) -> None:
        """The job holds nothing any more."""
        for name, amount in job.shared.items():
            self._shared[name] -= amount
        self.queues.hold(job, {JOBS: _WHOLE}, -1)

    def used(self, name: str) -> int:
        """Thousandths of an amount, or of GPUs (`gpu`), on all nodes."""
        return self._used.get(name, 0)

    def parts(self) -> dict[str, float]:
        """Of each amount and of GPUs: what is in use, as a part of what all nodes have."""
        return {name: self.used(name) / total for name, total in self._all.items() if total}

    def free(self, node: str) -> tuple[dict[str, int], list[int]]:
        """Amounts by name, and thousandths of each GPU, that nobody holds."""
        total, used = self._nodes[node].amounts, self._amounts[node]
        amounts = {name: amount - used.get(name, 0) for name, amount in total.items()}
        return amounts, [_WHOLE - part for part in self._gpus[node]]

    def _change(self, job: Job, role: Role, task: Task, sign: int) -> None:
        used = self._amounts[task.node]
        for name, amount in role.amounts.items():
            used[name] = used.get(name, 0) + sign * amount
        slots, part = self._gpus[task.node], role.share or _WHOLE
        for gpu in task.gpus:
            slots[gpu] += sign * part
        size = size_of(role)
        for name, amount in size.items():
            self._used[name] = self._used.get(name, 0) + sign * amount
        self.queues.hold(job, size, sign)


def size_of(role: Role) -> Mapping[str, int]:
    """What a task of the role counts for in its queue, in thousandths."""
    size = {name: amount * _WHOLE for name, amount in role.amounts.items()}
    gpu = role.share or role.gpus * _WHOLE
    return {**size, "gpu": gpu} if gpu else size


def role_of(job: Job, task: Task) -> Role:
    """Raises `Broken` where the job has no such role."""
    for role in job.roles:
        if role.name == task.role:
            return role
    raise Broken(f"{job.name} has no role {task.role}")
