"""What is free in time, and what of it is kept from one decision to the next."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.future import Future
from shoal.schedule.cycle.ground import Ground
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task

_NODES = tuple(Node(name=f"n{at}", gpus=4, amounts={"cpu": 8}) for at in range(3))
_QUEUES = (Queue(name="default"), Queue(name="other"))


def job(name: str, *places: tuple[str, int], wall: float | None = None, **more: object) -> Job:
    """One task on each GPU; all but the first may be taken back."""
    roles = (Role(minimum=1, maximum=4, gpus=1, amounts={"cpu": 2}),)
    tasks = tuple(Task(index=at, node=node, gpus=(gpu,)) for at, (node, gpu) in enumerate(places))
    return Job(name=name, roles=roles, wall_seconds=wall, **{"created": 0.0, "tasks": tasks, **more})


def on(*jobs: Job) -> Cluster:
    return Cluster(nodes=_NODES, queues=_QUEUES, jobs=jobs)


def free(future: Future, desk: Desk, name: str, at: float, *nodes: int) -> list[list[int]]:
    """Thousandths of GPUs in all, and cores, on each node."""
    found = future.on(np.array(nodes, dtype=np.int64) if nodes else None).at(desk.asked[name], at)
    return [found[:, 1:].sum(axis=1).tolist(), found[:, 0].tolist()]


def test_what_is_lent_is_back_for_those_who_may_ask_for_it() -> None:
    """In the queue and of no lower priority, a notice from now; all of it at the end for anybody."""
    runs = job("runs", ("n0", 0), ("n0", 1), ("n2", 0), wall=100.0)
    cluster = on(runs, job("waits"), job("far", queue="other"), job("low", priority=-1))
    desk = Desk(Ground(cluster), cluster, Rules(notice_seconds=30.0), 0.0)
    future = Future.of(desk)
    assert free(future, desk, "waits", 0.0) == [[2000, 4000, 3000], [4, 8, 6]]
    assert free(future, desk, "waits", 30.0) == [[3000, 4000, 4000], [6, 8, 8]]
    assert free(future, desk, "waits", 30.0, 0, 2) == [[3000, 4000], [6, 8]]
    assert free(future, desk, "far", 30.0, 0) == free(future, desk, "low", 30.0, 0) == [[2000], [4]]
    assert free(future, desk, "far", 100.0, 0) == [[4000], [8]]
    assert future.instants(desk.asked["waits"], 0.0, math.inf) == [30.0, 100.0]
    assert future.on(np.array([2])).instants(desk.asked["waits"], 0.0, math.inf) == [30.0]
    assert future.instants(desk.asked["far"], 0.0, math.inf) == [100.0]


def test_rows_that_come_go_and_change_are_counted_as_if_for_the_first_time() -> None:
    first = job("a", ("n0", 0), ("n1", 0), wall=100.0)
    second = job("b", ("n1", 1), ("n2", 1), wall=200.0)
    longer = msgspec.structs.replace(first, wall_seconds=150.0)
    moved = job("b", ("n0", 3), wall=200.0)
    waits = job("waits")
    rows = [
        (first, second, waits), (first, waits), (longer, second, waits), (longer, moved, waits),
        (waits,), (first, moved, waits),
    ]  # fmt: skip
    ground = Ground(on(*rows[0]))
    for now, jobs in enumerate(rows):
        cluster = on(*jobs)
        ground.update(cluster)
        kept = Desk(ground, cluster, Rules(), float(now))
        anew = Desk(Ground(cluster), cluster, Rules(), float(now))
        futures = Future.of(kept), Future.of(anew)
        for at in (0.0, 50.0, 100.0, 150.0, 200.0):
            mine, theirs = (
                free(future, desk, "waits", at)
                for future, desk in zip(futures, (kept, anew), strict=True)
            )
            assert mine == theirs
        times = [future.instants(anew.asked["waits"], 0.0, math.inf) for future in futures]
        assert times[0] == times[1]
        ground.close()
