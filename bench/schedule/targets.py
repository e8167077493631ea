"""Targets of elastic jobs as a decision finds them: rows in, a number of tasks for each job out.

`python -m bench.schedule.targets`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from bench.row import Row, table
from bench.schedule.timing import cpu_seconds, row
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.ground import Ground
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.sizes.targets import targets

__all__ = ["rows"]

_NODES, _PER_NODE, _QUEUES, _JOBS = 10_000, 10, 50, 5000
_RULES = Rules()


def rows() -> list[Row]:
    """Of 5,000 jobs with curves on 100,000 GPUs in 50 queues: seen for the first time, after one of them
    has said how far it is, and when nothing has happened."""
    known = _Known()
    return [
        _row("targets, seen for the first time", 50, known.first, known.forget),
        _row("targets, one job has gone on", 50, known.again, known.report),
        _row("targets, nothing has happened", 50, known.again),
    ]


def _row(
    what: str, goal: float, work: Callable[[], object], undo: Callable[[], object] = lambda: None
) -> Row:
    name = f"{what}; {_JOBS:,} jobs, {_NODES * _PER_NODE:,} GPUs, {_QUEUES} queues"
    return row(name, goal, "ms", cpu_seconds(work, undo, repeats=8))


class _Known:
    def __init__(self) -> None:
        draw = Random(1)
        nodes = tuple(Node(name=f"n{at:05}", gpus=_PER_NODE) for at in range(_NODES))
        queues = tuple(Queue(name=f"q{at}") for at in range(_QUEUES))
        self._jobs = _drawn(draw)
        self._cluster = Cluster(nodes=nodes, queues=queues, jobs=tuple(self._jobs))
        self._ground = Ground(self._cluster)
        self._desk = Desk(self._ground, self._cluster, _RULES, 0.0)
        self._next = 0

    def first(self) -> object:
        return targets(self._desk, ())

    again = first

    def forget(self) -> None:
        self._ground.sizes.clear()

    def report(self) -> None:
        """One more job has done something."""
        job = self._jobs[self._next]
        self._jobs[self._next] = msgspec.structs.replace(job, done=job.done + 10.0)
        self._next += 1
        self._cluster = msgspec.structs.replace(self._cluster, jobs=tuple(self._jobs))
        self._ground.close()
        self._ground.update(self._cluster)
        self._desk = Desk(self._ground, self._cluster, _RULES, 0.0)


def _drawn(draw: Random) -> list[Job]:
    """From 4 to 32 tasks each, side by side on the nodes, and up to twice as many allowed."""
    slots = ((f"n{at // _PER_NODE:05}", at % _PER_NODE) for at in range(_NODES * _PER_NODE))
    curves: dict[int, tuple[float, ...]] = {}
    jobs: list[Job] = []
    for number in range(_JOBS):
        count = draw.choice([4, 8, 16, 32])
        power = draw.uniform(0.4, 0.95)
        curve = curves.setdefault(2 * count, tuple(each**power for each in range(1, 2 * count + 1)))
        tasks = tuple(
            Task(index=index, node=node, gpus=(gpu,))
            for index, (node, gpu) in zip(range(count), slots, strict=False)
        )
        jobs.append(
            Job(
                name=f"j{number:04}",
                queue=f"q{draw.randrange(_QUEUES)}",
                roles=(Role(gpus=1, minimum=count // 4, maximum=2 * count),),
                tasks=tasks,
                speeds=curve,
                work=draw.lognormvariate(8, 1.5),
                restart_seconds=30.0,
            )
        )
    return jobs


if __name__ == "__main__":
    print(table(rows()))
