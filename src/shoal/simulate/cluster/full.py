"""A large cluster at work: jobs of all sizes run, others wait, queues have quotas, little is free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Task

__all__ = ["Sizes", "full"]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much there is of everything."""

    nodes: int = 10_000
    gpus_per_node: int = 10
    running: int = 5_000
    waiting: int = 2_000
    queues: int = 50
    families: int = 10
    """Queues under each of which equally many of `queues` are."""
    racks: int = 400
    use: float = 0.97
    """About so much of all GPUs is held."""
    elastic: float = 0.5
    """Part of the jobs that may do with half of their tasks."""
    seed: int = 0


def full(sizes: Sizes | None = None, now: float = 100_000.0) -> Cluster:
    """At `now`. Half of the jobs say how long they run at most; one in five has a higher priority. All
    queues have the same quota, which together is all there is."""
    sizes = sizes or Sizes()
    draw = np.random.default_rng(sizes.seed)
    nodes = tuple(
        Node(
            name=f"node-{at:05d}",
            gpus=sizes.gpus_per_node,
            amounts={"cpu": 12 * sizes.gpus_per_node, "memory": 64 * sizes.gpus_per_node},
            labels={"rack": f"rack-{at * sizes.racks // sizes.nodes:04d}"},
        )
        for at in range(sizes.nodes)
    )
    filling = _Filling(nodes, draw)
    gpus = sizes.use * sizes.nodes * sizes.gpus_per_node / sizes.running
    mean = gpus / float(np.mean(_tasks_of(sizes)))
    running = [filling.job(at, sizes, now, mean, placed=True) for at in range(sizes.running)]
    waiting = [
        filling.job(sizes.running + at, sizes, now, mean, placed=False) for at in range(sizes.waiting)
    ]
    return Cluster(nodes=nodes, levels=("rack",), queues=_queues(sizes), jobs=(*running, *waiting))


def _tasks_of(sizes: Sizes) -> list[int]:
    """GPUs of a task; each as likely."""
    return [1, 1, 2, sizes.gpus_per_node]


def _queues(sizes: Sizes) -> tuple[Queue, ...]:
    own = sizes.nodes * sizes.gpus_per_node / sizes.queues
    quota = {"gpu": own, "cpu": 12 * own, "memory": 64 * own}
    families = [Queue(name=f"family-{at}") for at in range(sizes.families)]
    leaves = [
        Queue(
            name=f"queue-{at}",
            parent=f"family-{at % sizes.families}",
            nominal=quota,
            guaranteed={"gpu": own / 2},
        )
        for at in range(sizes.queues)
    ]
    return (*families, *leaves)


class _Filling:
    """Fills node after node; a task that the node at hand has no room for begins the next."""

    def __init__(self, nodes: tuple[Node, ...], draw: np.random.Generator) -> None:
        self._nodes = nodes
        self._draw = draw
        self._node = 0
        self._used = 0

    def job(self, number: int, sizes: Sizes, now: float, mean: float, *, placed: bool) -> Job:
        """`mean`: tasks of a job."""
        draw = self._draw
        gpus = int(draw.choice(_tasks_of(sizes)))
        count = int(draw.geometric(min(1.0, 1.0 / mean)))
        elastic = bool(draw.random() < sizes.elastic)
        least = max(1, count // 2) if elastic else count
        amounts = {"cpu": 8 * gpus, "memory": 32 * gpus}
        role = Role(minimum=least, maximum=count, gpus=gpus, amounts=amounts)
        age = float(draw.uniform(10.0, 20_000.0))
        tasks = self._tasks(count, least, gpus) if placed else ()
        known = draw.random() < 0.5
        return Job(
            name=f"job-{number:05d}",
            queue=f"queue-{int(draw.integers(sizes.queues))}",
            user=f"user-{int(draw.integers(200))}",
            priority=10 if draw.random() < 0.2 else 0,
            created=now - age if not placed else now - age - 30_000.0,
            since=now - age if placed else 0.0,
            roles=(role,),
            tasks=tasks,
            wall_seconds=30_000.0 if known else None,
        )

    def _tasks(self, count: int, least: int, gpus: int) -> tuple[Task, ...]:
        """As many as there is room for; none where that is less than the least."""
        before = (self._node, self._used)
        found: list[Task] = []
        while len(found) < count and self._node < len(self._nodes):
            node = self._nodes[self._node]
            if self._used + gpus > node.gpus:
                self._node, self._used = self._node + 1, 0
                continue
            slots = tuple(range(self._used, self._used + gpus))
            found.append(Task(index=len(found), node=node.name, gpus=slots))
            self._used += gpus
        if len(found) < least:
            self._node, self._used = before
            return ()
        return tuple(found)
