"""Rows as a plan leaves them, step by step."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shoal.schedule.cycle.rows import Cluster, Job, Role, Task
from shoal.schedule.cycle.steps import Deny, Grow, Move, Plan, Preempt, Reserve, Shrink, Start, Step

__all__ = ["amounts_of", "given", "replay", "role_of", "told"]


def replay(cluster: Cluster, plan: Plan) -> Iterator[tuple[Step, Job, Job]]:
    """Each step with its job before and after it. Tasks that are told to go are there still; what is
    kept for a job that starts, or waits and is not told that its place is kept, is kept no more."""
    jobs = {job.name: job for job in cluster.jobs}
    kept = {step.job for step in plan.steps if isinstance(step, Reserve)}
    for step in plan.steps:
        before = jobs[step.job]
        jobs[step.job] = _after(before, step, step.job in kept)
        yield step, before, jobs[step.job]


def given(step: Step) -> tuple[Task, ...]:
    """What is there by this step, and was not."""
    return step.tasks if isinstance(step, Start | Grow) else ()


def told(step: Step) -> tuple[Task, ...]:
    """Who is told to go by it."""
    return step.tasks if isinstance(step, Shrink | Preempt | Move) else ()


def role_of(job: Job, task: Task) -> Role:
    """Raises ValueError where the job has no such role."""
    for role in job.roles:
        if role.name == task.role:
            return role
    raise ValueError(f"job {job.name} has no role {task.role}")


def amounts_of(role: Role) -> dict[str, int]:
    """Of one task by name, GPUs in thousandths as `gpu`."""
    gpu = role.share or 1000 * role.gpus
    return {**role.amounts, "gpu": gpu} if gpu else dict(role.amounts)


def _after(job: Job, step: Step, kept: bool) -> Job:
    if isinstance(step, Reserve):
        return msgspec.structs.replace(job, reserved=step.tasks)
    if isinstance(step, Deny):
        return job if kept else msgspec.structs.replace(job, reserved=())
    names = {(task.role, task.index) for task in given(step)}
    if names:
        rest = [task for task in job.reserved if kept and (task.role, task.index) not in names]
        return msgspec.structs.replace(job, tasks=job.tasks + given(step), reserved=tuple(rest))
    going = {(task.role, task.index) for task in told(step)}
    tasks = tuple(
        msgspec.structs.replace(task, stopping=True) if (task.role, task.index) in going else task
        for task in job.tasks
    )
    reserved = step.to if isinstance(step, Move) else job.reserved
    return msgspec.structs.replace(job, tasks=tasks, reserved=reserved)
