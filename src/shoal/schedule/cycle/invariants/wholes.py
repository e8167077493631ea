"""A gang is there with its minimum, or not at all; no job has more than it may, nor is it torn apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from shoal.schedule.cycle.invariants.replay import given, replay
from shoal.schedule.cycle.rows import Cluster, Job, Node, Task
from shoal.schedule.cycle.steps import Plan, Shrink

__all__ = ["lacks", "wrong"]


def wrong(cluster: Cluster, plan: Plan) -> list[str]:
    """Sentences."""
    nodes = {node.name: node for node in cluster.nodes}
    found: list[str] = []
    last: dict[str, tuple[Job, str]] = {}
    before = {job.name: job for job in cluster.jobs}
    grown: set[str] = set()
    for step, _, job in replay(cluster, plan):
        if given(step):
            grown.add(job.name)
            # a start may be followed by more for the same job: what counts is the end
            last[job.name] = (job, "is given tasks")
        elif isinstance(step, Shrink) and step.beneficiary == job.name:
            roles = {task.role for task in step.tasks}
            given_up = tuple(role for role in job.roles if role.name in roles)
            if missing := lacks(msgspec.structs.replace(job, roles=given_up, minimum=0)):
                found.append(f"{job.name} gives way for itself, and has {missing}")
        elif isinstance(step, Shrink) and step.beneficiary:
            last[job.name] = (job, f"gives way for {step.beneficiary}")
    for job, why in last.values():
        if missing := lacks(job):
            found.append(f"{job.name} {why}, and has {missing}")
        if job.name in grown:
            found += _too_many(job)
        if _torn(before[job.name], nodes, cluster.levels):
            continue  # where it is it was put by something else
        found += _torn(job, nodes, cluster.levels)
    return found


def lacks(job: Job) -> str:
    """What its minimum lacks of those who are there to stay; empty: nothing."""
    counts = Counter(task.role for task in job.present)
    for role in job.roles:
        if counts[role.name] < role.minimum:
            return f"{counts[role.name]} of {role.minimum} {role.name}"
    total = sum(counts.values())
    return f"{total} of {job.minimum} tasks" if total < job.minimum else ""


def _too_many(job: Job) -> Iterator[str]:
    counts = Counter((task.role, task.index) for task in job.tasks)
    for (role, index), times in counts.items():
        if times > 1:
            yield f"{job.name} has {role}-{index} {times} times"
    for role in job.roles:
        mine = [task for task in job.tasks if task.role == role.name]
        # who goes because there may be fewer now has an index beyond them
        most = max((task.index for task in mine if not task.stopping), default=-1)
        if len(mine) > role.maximum or most >= role.maximum:
            yield f"{job.name} has {len(mine)} {role.name} up to {most}, of {role.maximum}"


def _torn(job: Job, nodes: dict[str, Node], levels: Sequence[str]) -> list[str]:
    wanted = [("", job.required, job.present)] if job.required else []
    for role in job.roles:
        if role.required:
            mine = tuple(task for task in job.present if task.role == role.name)
            wanted.append((f"/{role.name}", role.required, mine))
    found: list[str] = []
    for who, level, tasks in wanted:
        domains = {_domain(task, level, nodes, levels) for task in tasks}
        if len(domains) > 1 or any(domain is None for domain in domains):
            found.append(f"{job.name}{who} must be in one {level}, and is not")
    return found


def _domain(
    task: Task, level: str, nodes: dict[str, Node], levels: Sequence[str]
) -> tuple[str, ...] | None:
    if level not in levels:
        return (task.node,)
    node = nodes.get(task.node)
    path = tuple(
        "" if node is None else node.labels.get(each, "") for each in levels[: levels.index(level) + 1]
    )
    return path if all(path) else None
