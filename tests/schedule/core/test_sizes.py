"""Sizes of elastic jobs on idle capacity."""

from __future__ import annotations

import pytest

from shoal.schedule.core.cycle import plan
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.steps import Grow, Reserve


@pytest.mark.parametrize("speeds", [(1.0, 2.0, 3.0, 4.0), ()])
def test_a_curve_counts_tasks_of_the_elastic_role_alone(speeds: tuple[float, ...]) -> None:
    """With a coordinator beside it, a job grows to the end of its curve at once."""
    roles = (
        Role(name="coordinator", amounts={"cpu": 100}),
        Role(minimum=1, maximum=4, amounts={"cpu": 1000}),
    )
    tasks = (
        Task(role="coordinator", node="n"),
        Task(index=0, node="n"),
        Task(index=1, node="n"),
    )
    job = Job(name="j", roles=roles, tasks=tasks, speeds=speeds)
    node = Node(name="n", amounts={"cpu": 5000})
    made = plan(Cluster(nodes=(node,), queues=(Queue(name="default"),), jobs=(job,)), Rules(), 100.0)
    (step,) = made.steps
    assert isinstance(step, Grow)
    assert [(task.role, task.index) for task in step.tasks] == [("worker", 2), ("worker", 3)]


def test_queues_of_different_depth_are_compared() -> None:
    """One job is in a queue at the top, one in a queue below another; their shares are equal."""
    queues = (Queue(name="flat"), Queue(name="top"), Queue(name="below", parent="top"))
    jobs = tuple(
        Job(
            name=queue,
            queue=queue,
            roles=(Role(minimum=1, maximum=4, amounts={"cpu": 1000}),),
            tasks=(Task(node="n"),),
        )
        for queue in ("flat", "below")
    )
    node = Node(name="n", amounts={"cpu": 6000})
    made = plan(Cluster(nodes=(node,), queues=queues, jobs=jobs), Rules(), 100.0)
    assert {step.job: len(step.tasks) for step in made.steps if isinstance(step, Grow)} == {
        "below": 2,
        "flat": 2,
    }


def test_a_reservation_does_not_count_surplus_twice() -> None:
    """A job with surplus ends before another starts: its tasks come free once, not once more each."""
    running = Job(
        name="elastic",
        roles=(Role(minimum=1, maximum=2, gpus=1),),
        tasks=(Task(node="n", gpus=(0,)), Task(index=1, node="n", gpus=(1,))),
        wall_seconds=300.0,
    )
    blocked = Job(
        name="blocked",
        created=50.0,
        roles=(Role(minimum=3, maximum=3, gpus=1),),
        wall_seconds=60.0,
        promised=200.0,
        place=tuple(Task(index=at, node=name) for at, name in enumerate("nnm")),
    )
    other = Job(
        name="other",
        roles=(Role(gpus=1),),
        tasks=(Task(node="m", gpus=(0,)),),
        wall_seconds=400.0,
    )
    nodes = (Node(name="m", gpus=1), Node(name="n", gpus=2))
    cluster = Cluster(nodes=nodes, queues=(Queue(name="default"),), jobs=(blocked, other, running))
    (step,) = [each for each in plan(cluster, Rules(), 100.0).steps if isinstance(each, Reserve)]
    assert step.at == 400.0
    assert sorted((task.node, task.gpus) for task in step.place) == [
        ("m", (0,)),
        ("n", (0,)),
        ("n", (1,)),
    ]
