"""What a step must not do, whatever the reason: each rule is a function that raises `Broken`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from shoal.schedule.cycle.rows import Job, Node, Task
from shoal.schedule.taints import tolerates
from shoal.simulate.cluster.broken import Broken
from shoal.simulate.cluster.held import role_of

__all__ = ["below", "check_counts", "check_domains", "check_drained", "check_node", "check_taken"]


def below(job: Job, roles: Collection[str] | None = None) -> str:
    """In which role (of these), or in all, fewer tasks are there to stay than must be; empty if none."""
    counts = Counter(task.role for task in job.tasks if not task.stopping)
    for role in job.roles:
        if roles is not None and role.name not in roles:
            continue
        if counts[role.name] < role.minimum:
            return f"{counts[role.name]} of {role.minimum} {role.name}"
    total = sum(counts.values()) if roles is None else job.minimum
    return f"{total} of {job.minimum} tasks" if total < job.minimum else ""


def check_counts(job: Job) -> None:
    """All its tasks are different ones, none beyond the maximum of its role; the gang is whole."""
    names = Counter((task.role, task.index) for task in job.tasks)
    for (role, index), times in names.items():
        if times > 1:
            raise Broken(f"{job.name} has {role}-{index} {times} times")
    for role in job.roles:
        present = [task for task in job.tasks if task.role == role.name]
        # who goes because there may be fewer now has an index beyond them
        most = max((task.index for task in present if not task.stopping), default=-1)
        if len(present) > role.maximum or most >= role.maximum:
            raise Broken(f"{job.name} has {len(present)} {role.name} up to {most}, of {role.maximum}")
    if lacks := below(job):
        raise Broken(f"{job.name} has {lacks}: that is less than its minimum")


def check_node(job: Job, task: Task, node: Node | None) -> None:
    """The node takes tasks, and this job's."""
    where = f"{job.name}/{task.role}-{task.index} on {task.node}"
    if node is None:
        raise Broken(f"{where}: there is no such node")
    if not (node.ready and node.schedulable):
        raise Broken(f"{where}: the node takes no tasks")
    role = role_of(job, task)
    for name, value in role.selector.items():
        if node.labels.get(name) != value:
            raise Broken(f"{where}: the node's {name} is not {value}")
    for taint in node.taints:
        if not tolerates(role.tolerations, taint):
            raise Broken(f"{where}: it does not tolerate {taint.key}")


def check_domains(job: Job, nodes: Mapping[str, Node], levels: Sequence[str]) -> None:
    """What is required to be in one domain is."""
    present = job.present
    if job.required:
        _one_domain(job.name, job.required, present, nodes, levels)
    for role in job.roles:
        if role.required:
            mine = [task for task in present if task.role == role.name]
            _one_domain(f"{job.name}/{role.name}", role.required, mine, nodes, levels)


def check_drained(job: Job, tasks: Sequence[Task], nodes: Mapping[str, Node]) -> None:
    """Each is on a node that drives it away."""
    for task in tasks:
        tolerated = role_of(job, task).tolerations
        taints = (taint for taint in nodes[task.node].taints if taint.effect == "NoExecute")
        if all(tolerates(tolerated, taint) for taint in taints):
            raise Broken(f"{job.name}/{task.role}-{task.index} is drained, and {task.node} is not")


def check_taken(job: Job, tasks: Sequence[Task]) -> None:
    """Those who are told to go are there, and were not told before."""
    here = {(task.role, task.index) for task in job.present}
    for task in tasks:
        if (task.role, task.index) not in here:
            raise Broken(f"{job.name} has no {task.role}-{task.index} that could be told to go")


def _one_domain(
    who: str, level: str, tasks: Sequence[Task], nodes: Mapping[str, Node], levels: Sequence[str]
) -> None:
    depth = levels.index(level) + 1 if level in levels else None
    domains: set[tuple[str, ...]] = set()
    for task in tasks:
        labels = nodes[task.node].labels
        if depth is None:
            domains.add((task.node,))
        elif all(each in labels for each in levels[:depth]):
            domains.add(tuple(labels[each] for each in levels[:depth]))
        else:
            raise Broken(f"{who}: {task.node} is in no {level}")
    if len(domains) > 1:
        raise Broken(f"{who} must be in one {level}, and is in {len(domains)}")
