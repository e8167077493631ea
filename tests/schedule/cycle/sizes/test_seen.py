"""Rows as arrays."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.ground import Ground
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.sizes.members import Member, groups
from shoal.schedule.cycle.sizes.outlook import remaining, speed
from shoal.schedule.cycle.sizes.seen import curves, seen

JOB = Job(
    name="j",
    roles=(Role(minimum=2, maximum=4, gpus=1),),
    tasks=(Task(index=0, node="n", gpus=(0,)), Task(index=1, node="n", gpus=(1,))),
    speeds=(0.0, 3.0, 4.0),
    work=90.0,
    done=30.0,
)
change = msgspec.structs.replace


def members(*jobs: Job) -> list[Member]:
    cluster = Cluster(nodes=(Node(name="n", gpus=64),), queues=(Queue(name="default"),), jobs=jobs)
    desk = Desk(Ground(cluster), cluster, Rules(), 0.0)
    return [member for _, found in groups(desk, ()) for member in found]


def test_below_its_minimum_a_job_is_as_much_slower_as_it_is_smaller() -> None:
    """Two units a task: half a task, one, one and a half, and so on."""
    found = curves([((0.0, 3.0, 4.0), 2, 4, 2)], np.arange(1, 9))
    assert found.tolist() == [[0.75, 1.5, 1.5, 3, 3, 4, 0, 0]]


@pytest.mark.parametrize("seed", range(20))
def test_curves_are_those_of_the_rows(seed: int) -> None:
    draw = Random(seed)
    kinds = [
        (tuple(draw.uniform(0.1, 9.0) for _ in range(draw.randint(1, 6))), draw.randint(1, 4))
        for _ in range(5)
    ]
    asked = [(speeds, low, draw.randint(low, 7), draw.choice([1, 1, 3])) for speeds, low in kinds]
    units = np.arange(1, 22)
    for (speeds, low, high, width), found in zip(asked, curves(asked, units), strict=True):
        job = change(JOB, roles=(Role(minimum=low, maximum=high),), speeds=speeds)
        for unit, value in zip(units.tolist(), found.tolist(), strict=True):
            tasks = min(max(1, unit // width), high)
            fast = speed(job, max(tasks, low)) * min(tasks, low) / low
            there = unit <= width * min(high, max(len(speeds), low))
            assert value == pytest.approx(fast * min(1.0, unit / width) if there else 0.0)


def test_what_is_there_is_counted_in_units_and_equal_curves_share_a_row() -> None:
    other = change(
        JOB,
        name="k",
        tasks=(Task(index=0, node="n", gpus=(2,)), Task(index=1, node="n", gpus=(3,))),
        work=None,
        restart_seconds=9.0,
        created=7.0,
    )
    found = seen(members(JOB, other), [2, 2], 8, 64)
    assert found.row.tolist() == [0, 0] and len(found.possible) == 1
    assert found.least.tolist() == found.current.tolist() == [4, 4]
    assert found.grid.tolist() == [1, 2, 3, 4, 5, 6]
    assert found.restart.tolist() == [1.0, 9.0]
    assert found.submitted.tolist() == [0.0, 7.0]
    assert found.declared and found.attained.tolist() == [40, 40]
    assert found.remaining[0] * 0.75 == pytest.approx(remaining(JOB))
    assert found.remaining[1] == found.remaining[0]
    silent = seen(members(change(JOB, work=None)), [1], 8, 64)
    assert not silent.declared
