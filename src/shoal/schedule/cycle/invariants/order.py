"""Steps in an order that is safe to cut after any of them, and none without a reason to be there."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.schedule.cycle.invariants.replay import given, replay, told
from shoal.schedule.cycle.rows import Cluster, Job
from shoal.schedule.cycle.steps import Deny, Grow, Move, Plan, Preempt, Reserve, Shrink, Start, Step

__all__ = ["wrong"]

_PLACE: dict[type[Step], int] = {Reserve: 0, Shrink: 1, Preempt: 1, Move: 1, Start: 2, Grow: 2, Deny: 3}
"""Reservations come first: who gives way does so for somebody who has a place by then."""


def wrong(cluster: Cluster, plan: Plan) -> list[str]:
    """Sentences."""
    jobs = {job.name: job for job in cluster.jobs}
    strangers = [f"{_said(step)}: there is no such job" for step in plan.steps if step.job not in jobs]
    if strangers:
        return strangers
    places = [_PLACE[type(step)] for step in plan.steps]
    found = [
        f"{_said(step)} comes too late in the plan"
        for step, place, last in zip(plan.steps[1:], places[1:], places, strict=False)
        if place < last
    ]
    found += _twice(plan)
    for step, before, _ in replay(cluster, plan):
        found += _of_tasks(before, step)
    return [*found, *_for_no_one(plan), *_untold(cluster, plan)]


def _said(step: Step) -> str:
    return f"{type(step).__name__} {step.job}"


def _twice(plan: Plan) -> Iterator[str]:
    """One thing is done to a job: it gives way, or it is given something; and it is told once that it
    waits."""
    done: dict[str, str] = {}
    waits: set[str] = set()
    for step in plan.steps:
        if isinstance(step, Reserve | Deny):
            if step.job in waits:
                yield f"{step.job} is told twice that it waits"
            waits.add(step.job)
            continue
        kind = "given" if isinstance(step, Start | Grow) else "taken"
        if done.setdefault(step.job, kind) != kind:
            yield f"something is given to {step.job} and taken from it"


def _of_tasks(job: Job, step: Step) -> Iterator[str]:
    here = {(task.role, task.index): task for task in job.tasks}
    for task in told(step):
        found = here.get((task.role, task.index))
        if found is None or found.stopping:
            yield f"{_said(step)}: it has no {task.role}-{task.index} that could be told to go"
    if isinstance(step, Preempt | Move):
        staying = len(job.present) - len(told(step))
        if staying:
            yield f"{_said(step)}: {staying} of its tasks stay"
    if isinstance(step, Shrink | Preempt | Move | Start | Grow) and not (told(step) or given(step)):
        yield f"{_said(step)} names no tasks"
    if given(step) and job.suspended:
        yield f"{_said(step)}: it is suspended"
    if isinstance(step, Start) and job.tasks:
        yield f"{_said(step)}: it holds {len(job.tasks)} tasks already"
    if isinstance(step, Move):
        counts = [sorted(task.role for task in tasks) for tasks in (step.tasks, step.to)]
        if counts[0] != counts[1]:
            yield f"{_said(step)}: not all of it has a place where it goes"


def _for_no_one(plan: Plan) -> Iterator[str]:
    """Nobody gives way but for somebody who is kept a place by then: another, or a role of its own."""
    kept: dict[str, set[str]] = {}
    for step in plan.steps:
        if isinstance(step, Reserve) and step.tasks:
            kept[step.job] = {task.role for task in step.tasks}
        if isinstance(step, Shrink | Preempt | Move) and step.beneficiary:
            roles = {task.role for task in step.tasks}
            if step.beneficiary == step.job and not kept.get(step.job, roles).isdisjoint(roles):
                yield f"{_said(step)} is for itself"
            elif step.beneficiary not in kept:
                yield f"{_said(step)} is for {step.beneficiary}, which is kept no place"


def _untold(cluster: Cluster, plan: Plan) -> Iterator[str]:
    """Who holds nothing is started, or told why not."""
    named = {step.job for step in plan.steps}
    for job in cluster.jobs:
        if not (job.tasks or job.suspended or job.name in named):
            yield f"{job.name} waits, and is not told why"
