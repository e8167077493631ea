"""Jobs of all kinds in waves onto a small cluster, and after each decisions without a moment between
them."""

from __future__ import annotations

from random import Random

import msgspec

from shoal.schedule.cycle.invariants import broken
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.schedule.cycle.steps import Grow, Move, Plan, Preempt, Shrink, Start
from shoal.simulate.cluster.world import World

__all__ = ["MOST", "Waves", "settle"]

MOST = 40
"""Decisions at one instant; there are a tenth as many jobs."""


class Waves:
    """A world, and jobs that come in waves. Equal seeds are equal runs."""

    def __init__(self, seed: int) -> None:
        self._draw = draw = Random(seed)
        self._racks = draw.choice([0, 0, 2])
        nodes = tuple(self._node(at) for at in range(draw.randint(2, 6)))
        self.total = sum(node.gpus for node in nodes)
        queues = self._queues()
        above = {queue.parent for queue in queues}
        self._leaves = [queue.name for queue in queues if queue.name not in above]
        rules = Rules(
            starving_seconds=draw.choice([100.0, 1e9]),
            minimum_run_seconds=draw.choice([0.0, 0.0, 60.0]),
            consolidate=draw.random() < 0.8,
        )
        cluster = Cluster(
            nodes=nodes, queues=queues, levels=("rack",) if self._racks else (), shared={"licence": 2}
        )
        self.world = World(cluster, rules)
        self.now = 1000.0
        self._count = 0

    def wave(self) -> None:
        """Some come, some end, a node may be lost or come back."""
        draw, world = self._draw, self.world
        self.now += draw.choice([5.0, 40.0, 120.0, 400.0])
        for _ in range(draw.randint(1, 6)):
            world.submit(self._job())
        running = [name for name, job in world.jobs.items() if job.present]
        if draw.random() < 0.5:
            for name in draw.sample(running, min(len(running), 2)):
                world.finish(name, self.now)
        if draw.random() < 0.2:
            world.lose(draw.choice(list(world.nodes)), self.now)
        elif draw.random() < 0.5:
            for name in world.nodes:
                world.back(name)

    def _node(self, at: int) -> Node:
        labels = {"rack": f"r{at % self._racks}"} if self._racks else {}
        return Node(
            name=f"n{at}", gpus=self._draw.choice([1, 2, 4, 8]), amounts={"cpu": 16}, labels=labels
        )

    def _queues(self) -> tuple[Queue, ...]:
        draw = self._draw
        found: list[Queue] = []
        tops = draw.randint(1, 3)
        for top in range(tops):
            inner = draw.choice([0, 0, 2, 3])
            parent = Queue(name=f"q{top}", weight=draw.choice([1.0, 1.0, 2.0, 0.5]))
            found.append(parent)
            if not inner:
                found[-1] = self._with_quota(parent, tops)
            for at in range(inner):
                leaf = Queue(
                    name=f"q{top}.{at}",
                    parent=parent.name,
                    weight=draw.choice([1.0, 1.0, 2.0]),
                    fenced=draw.random() < 0.1,
                    minimum_seconds=draw.choice([0.0, 0.0, 0.0, 50.0]),
                )
                found.append(self._with_quota(leaf, tops * inner))
        return tuple(found)

    def _with_quota(self, queue: Queue, among: int) -> Queue:
        draw = self._draw
        own = float(draw.choice([0, self.total // among, self.total // (2 * among)]))
        most = own + draw.randint(1, self.total)
        return msgspec.structs.replace(
            queue,
            nominal={"gpu": own},
            guaranteed={"gpu": own // 2} if draw.random() < 0.2 else {},
            limit={"gpu": most} if draw.random() < 0.15 else {},
            borrowing={"gpu": float(draw.randint(0, self.total))} if draw.random() < 0.1 else {},
            user_limit={"gpu": most} if draw.random() < 0.1 else {},
            jobs=draw.randint(1, 4) if draw.random() < 0.1 else None,
            priority=draw.choice([0, 0, 0, 1]),
        )

    def _job(self) -> Job:
        draw = self._draw
        self._count += 1
        least = draw.randint(1, 4)
        fraction = draw.random() < 0.15
        worker = Role(
            minimum=least,
            maximum=least + draw.choice([0, 0, 1, 2, 6]),
            gpus=0 if fraction else draw.choice([0, 1, 1, 1, 2, 4]),
            share=draw.choice([250, 500, 700]) if fraction else 0,
            amounts={"cpu": draw.choice([0, 1, 2])},
            required="rack" if self._racks and draw.random() < 0.15 else "",
        )
        server = Role(name="server", amounts={"cpu": 1})
        return Job(
            name=f"j{self._count:02}",
            queue=draw.choice(self._leaves),
            user=draw.choice(["ann", "bob"]),
            priority=draw.choice([0, 0, 0, 1, 5]),
            created=self.now - draw.randint(0, 300),
            roles=(worker, server) if draw.random() < 0.15 else (worker,),
            wall_seconds=draw.choice([None, None, None, 300.0, 1000.0]),
            preemptible=draw.random() > 0.1,
            spread="rack" if self._racks and draw.random() < 0.05 else "",
            shared={"licence": 1} if draw.random() < 0.05 else {},
        )


def settle(world: World, now: float) -> str:
    """Decide until there is nothing to do, all at `now`; who is told to go is gone at once. What is
    wrong with that, in a sentence: somebody was started only to be stopped, or it never ends. Empty:
    nothing."""
    given: set[tuple[str, str, int, str]] = set()
    for _ in range(MOST):
        rows, plan = world.cluster, world.plan(now)
        if wrong := broken(rows, plan, now + world.rules.notice_seconds):
            return wrong[0]
        world.apply(plan, now)
        for step in plan.steps:
            if isinstance(step, Shrink | Preempt | Move):
                for task in step.tasks:
                    if (step.job, task.role, task.index, task.node) in given:
                        return f"{step.job}/{task.role}-{task.index} has just been given: {step.code}"
            elif isinstance(step, Start | Grow):
                given |= {(step.job, task.role, task.index, task.node) for task in step.tasks}
        if not _does(plan):
            return ""
        for name in list(world.jobs):
            if name in world.jobs:
                world.gone(name)
    return f"after {MOST} decisions there is still something to do"


def _does(plan: Plan) -> bool:
    return any(isinstance(step, Start | Grow | Shrink | Preempt | Move) for step in plan.steps)
