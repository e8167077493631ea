"""What jobs hold as arrays, while they come, change and go."""

from __future__ import annotations

import math
import random

import msgspec
import numpy as np

from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.holdings import Holdings
from shoal.schedule.cycle.needs import Kinds
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Task

_CLUSTER = Cluster(
    nodes=(Node(name="a", amounts={"cpu": 9000}, gpus=8),), queues=(Queue(name="default"),)
)
_COLUMNS = Columns(_CLUSTER)


def _asked(job: Job) -> Asked:
    return Asked(job, _COLUMNS, Kinds(_COLUMNS))


def _job(name: str, tasks: int, draw: random.Random) -> Job:
    return Job(
        name=name,
        roles=(Role(minimum=2, maximum=draw.choice([2, 4]), gpus=1, amounts={"cpu": 100}),),
        tasks=tuple(Task(index=at, node="a", gpus=(at,)) for at in range(tasks)),
        since=float(draw.randrange(50)),
        wall_seconds=draw.choice([None, 10.0, 60.0]),
        preemptible=draw.random() < 0.7,
    )


def test_rows_are_those_of_the_jobs_that_are_there_now() -> None:
    """As many as come after others have gone, beyond the first arrays too."""
    draw = random.Random(5)
    holdings, there = Holdings(len(_COLUMNS.names) - 1), dict[str, Asked]()
    for _ in range(2000):
        name = f"job-{draw.randrange(150):03d}"
        if draw.random() < 0.3:
            holdings.drop(name)
            there.pop(name, None)
            continue
        there[name] = _asked(_job(name, draw.randrange(5), draw))
        holdings.put(there[name])
    those = {name: asked for name, asked in there.items() if asked.present}
    assert len(those) > 64
    rows = holdings.rows(set())
    assert {asked.job.name for asked in holdings.of(rows)} == those.keys()
    for at, asked in zip(rows.tolist(), holdings.of(rows), strict=True):
        assert asked is those[asked.job.name]
        assert holdings.held[at].tolist() == list(asked.held)
        assert holdings.lent[at].tolist() == (list(asked.lent) if asked.needs.elastic else [0, 0])
        assert holdings.ends[at] == asked.ends
        assert holdings.since[at] == asked.job.since
        assert holdings.wall[at] == (asked.job.wall_seconds or math.inf)
        assert bool(holdings.firm[at]) is not asked.job.preemptible
    by = 45.0
    assert holdings.ending(by) == {name for name, asked in those.items() if asked.ends <= by}


def test_who_holds_nothing_has_no_row() -> None:
    """Neither who waits, nor whose tasks were all told to go."""
    holdings = Holdings(len(_COLUMNS.names) - 1)
    job = _job("one", 2, random.Random(1))
    holdings.put(_asked(job))
    assert holdings.rows(set()).size == 1
    assert holdings.rows({"one"}).size == 0
    going = tuple(msgspec.structs.replace(task, stopping=True) for task in job.tasks)
    holdings.put(_asked(msgspec.structs.replace(job, tasks=going)))
    assert not holdings.at
    assert holdings.ending(math.inf) == set()
    assert np.isinf(holdings.ends).all()
