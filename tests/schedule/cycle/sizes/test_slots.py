"""Tasks of different sizes in one unit."""

from __future__ import annotations

import numpy as np

from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.needs import Kinds
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role
from shoal.schedule.cycle.sizes.slots import smallest
from shoal.schedule.placing.asks import Shape, Tasks
from shoal.schedule.placing.room import Room

ROLES = (
    Role(name="worker", minimum=1, maximum=4, gpus=2, amounts={"cpu": 8}),
    Role(name="ps", minimum=1, maximum=1, amounts={"cpu": 4}),
)
CLUSTER = Cluster(
    nodes=(Node(name="a", gpus=8, amounts={"cpu": 64}), Node(name="b", gpus=4, amounts={"cpu": 8})),
    queues=(Queue(name="default"),),
    jobs=(Job(name="j", roles=ROLES),),
)
COLUMNS = Columns(CLUSTER)


def test_gpus_are_counted_by_gpus_and_others_by_what_they_take_most_of() -> None:
    one, two, half, none = (
        Shape((4,), gpus=1),
        Shape((9,), gpus=2),
        Shape((1,), share=500),
        Shape((6,)),
    )
    unit = smallest([two, one])
    assert unit.shape == one
    assert [unit.parts(each) for each in (one, two, half, none)] == [1, 2, 0.5, 0]
    assert [unit.width(each) for each in (two, half)] == [2, 1]
    assert smallest([one, half]).width(one) == 2
    cpu = smallest([none, Shape((4,))])
    assert (cpu.parts(none), cpu.width(none)) == (1.5, 2)


def test_a_job_is_as_many_units_as_its_tasks_and_small_helpers_are_none() -> None:
    asked = Asked(CLUSTER.jobs[0], COLUMNS, Kinds(COLUMNS))
    assert smallest(asked.shapes[:1]).units(asked, (3, 1)) == 3
    assert smallest(asked.shapes[1:]).units(asked, (3, 1)) == 7
    assert smallest([Shape((40,))]).units(asked, (0, 1)) == 0


def test_what_is_free_and_what_an_empty_node_holds() -> None:
    asked = Asked(CLUSTER.jobs[0], COLUMNS, Kinds(COLUMNS))
    unit, room = smallest(asked.shapes[:1]), Room(COLUMNS.nodes)
    assert unit.per_node(room) == 4
    room.occupy(Tasks(asked.shapes[0], np.array([0]), np.array([[0, 1]])))
    assert unit.free(room).tolist() == [3, 1]
    assert unit.per_node(room) == 4
