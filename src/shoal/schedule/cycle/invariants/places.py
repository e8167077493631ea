"""What is given is there at that moment, on nodes that suit; and what is kept is kept for one alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shoal.schedule.cycle.invariants.replay import given, replay, role_of
from shoal.schedule.cycle.rows import Cluster, Job, Node, Task
from shoal.schedule.cycle.steps import Deny, Grow, Move, Plan, Reserve, Start
from shoal.schedule.taints import tolerates

__all__ = ["wrong"]

_WHOLE = 1000


def wrong(cluster: Cluster, plan: Plan) -> list[str]:
    """Sentences. At each cut: steps before it are done, those after it are not."""
    nodes = {node.name: node for node in cluster.nodes}
    touched = {task.node for step in plan.steps for task in given(step)}
    used = _Used(nodes, touched)
    for job in cluster.jobs:
        used.add(job, job.tasks)
    found: list[str] = []
    for step, job, _ in replay(cluster, plan):
        tasks = given(step)
        if tasks:
            used.add(job, tasks)
            found += [f"{job.name} is given what is not free: {each}" for each in used.over(tasks)]
            found += _unsuited(job, tasks, nodes)
    return [*found, *_kept_twice(cluster, plan, nodes), *_licences(cluster, plan)]


class _Used:
    """Of some nodes: amounts, and thousandths of each GPU."""

    def __init__(self, nodes: dict[str, Node], names: Iterable[str]) -> None:
        self._nodes = {name: nodes[name] for name in names if name in nodes}
        self._amounts: dict[str, dict[str, int]] = {name: {} for name in self._nodes}
        self._gpus: dict[str, dict[int, int]] = {name: {} for name in self._nodes}

    def add(self, job: Job, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.node not in self._nodes:
                continue
            role = role_of(job, task)
            amounts, gpus = self._amounts[task.node], self._gpus[task.node]
            for name, amount in role.amounts.items():
                amounts[name] = amounts.get(name, 0) + amount
            for gpu in task.gpus:
                gpus[gpu] = gpus.get(gpu, 0) + (role.share or _WHOLE)

    def over(self, tasks: Iterable[Task]) -> Iterator[str]:
        """On the nodes of these tasks."""
        for name in dict.fromkeys(task.node for task in tasks if task.node in self._nodes):
            node = self._nodes[name]
            for resource, used in sorted(self._amounts[name].items()):
                if used > (has := node.amounts.get(resource, 0)):
                    yield f"node {name} has {has} {resource} of {used}"
            for gpu, part in sorted(self._gpus[name].items()):
                if not 0 <= gpu < node.gpus:
                    yield f"node {name} has no GPU {gpu}"
                elif part > _WHOLE:
                    yield f"{part} thousandths of GPU {gpu} of node {name}"


def _unsuited(job: Job, tasks: Iterable[Task], nodes: dict[str, Node]) -> Iterator[str]:
    for task in tasks:
        role, node = role_of(job, task), nodes.get(task.node)
        where = f"{job.name}/{task.role}-{task.index} on {task.node}"
        if node is None or not (node.ready and node.schedulable):
            yield f"{where}: the node takes no tasks"
            continue
        if any(node.labels.get(name) != value for name, value in role.selector.items()):
            yield f"{where}: the node's labels are others than it asks for"
        if not all(tolerates(role.tolerations, taint) for taint in node.taints):
            yield f"{where}: it does not tolerate a taint of the node"
        wanted = role.gpus or bool(role.share)
        if len(set(task.gpus)) != wanted or len(task.gpus) != wanted:
            yield f"{where} has the GPUs {list(task.gpus)}, and asks for {int(wanted)}"


def _kept_twice(cluster: Cluster, plan: Plan, nodes: dict[str, Node]) -> Iterator[str]:
    """What is kept and what is given in this plan have room beside each other."""
    after = {job.name: job for job in cluster.jobs}
    fresh: dict[str, tuple[Task, ...]] = {}
    for step, _, job in replay(cluster, plan):
        after[job.name] = job
        if isinstance(step, Start | Grow):
            fresh[job.name] = (*fresh.get(job.name, ()), *step.tasks)
    changed = {step.job for step in plan.steps if isinstance(step, Reserve | Deny | Move | Start | Grow)}
    kept = {name: job.reserved for name, job in after.items() if name in changed}
    used = _Used(nodes, nodes)
    tasks: list[Task] = []
    for name in sorted(changed):
        mine = (*kept[name], *fresh.get(name, ()))
        used.add(after[name], mine)
        tasks += mine
    for sentence in used.over(tasks):
        yield f"kept or given to several: {sentence}"


def _licences(cluster: Cluster, plan: Plan) -> Iterator[str]:
    used: dict[str, int] = {}
    started = {step.job for step in plan.steps if isinstance(step, Start)}
    for job in cluster.jobs:
        if job.tasks or job.name in started:
            for name, amount in job.shared.items():
                used[name] = used.get(name, 0) + amount
    for name in sorted({name for job in cluster.jobs if job.name in started for name in job.shared}):
        if used[name] > cluster.shared.get(name, 0):
            yield f"{used[name]} of {name} are given out, and there are {cluster.shared.get(name, 0)}"
