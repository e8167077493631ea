"""A planner that gives what is free to whoever came first, on one node: enough to drive a simulation."""

from __future__ import annotations

from collections.abc import Callable

from shoal.schedule.cycle.rows import Cluster, Job, Node, Role, Rules, Task
from shoal.schedule.cycle.steps import Grow, Plan, Start
from shoal.simulate.cluster.work import Arrival

__all__ = ["NODE", "arrival", "first_come"]

NODE = Node(name="n", gpus=4)


def arrival(
    name: str, at: float, seconds: float, gpus: int = 1, most: int = 0, **more: object
) -> Arrival:
    """A job of `gpus` tasks with a GPU each, up to `most`."""
    role = Role(minimum=gpus, maximum=max(gpus, most), gpus=1)
    wall = more.pop("wall_seconds", None)
    job = Job(name=name, created=at, roles=(role,), wall_seconds=wall)  # pyright: ignore[reportArgumentType]
    return Arrival(at=at, job=job, seconds=seconds, **more)  # pyright: ignore[reportArgumentType]


def first_come(cluster: Cluster, rules: Rules, now: float) -> Plan:
    """Gangs in order as far as they fit, with all that they can use; what is left goes to who grows."""
    free = {(node.name, gpu) for node in cluster.nodes if node.ready for gpu in range(node.gpus)}
    free -= {(task.node, gpu) for job in cluster.jobs for task in job.tasks for gpu in task.gpus}
    left = sorted(free)
    steps: list[Start | Grow] = []

    def give(job: Job, kind: Callable[..., Start | Grow], wanted: int) -> None:
        taken = {task.index for task in job.tasks}
        indices = [index for index in range(job.roles[0].maximum) if index not in taken][:wanted]
        slots = [left.pop(0) for _ in indices]
        tasks = tuple(
            Task(index=index, node=node, gpus=(gpu,))
            for index, (node, gpu) in zip(indices, slots, strict=True)
        )
        if tasks:
            steps.append(kind(job=job.name, code="Fits", tasks=tasks))

    for job in cluster.jobs:
        lacks = job.roles[0].minimum - len(job.tasks)
        if 0 < lacks <= len(left):
            give(
                job, Grow if job.tasks else Start, min(len(left), job.roles[0].maximum - len(job.tasks))
            )
    for job in cluster.jobs:
        if left and len(job.tasks) >= job.roles[0].minimum:
            give(job, Grow, min(len(left), job.roles[0].maximum - len(job.tasks)))
    return Plan(steps=tuple(steps))
