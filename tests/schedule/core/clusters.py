"""Random small clusters that live: jobs arrive, end, and plans of the core are carried out."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from shoal.schedule.core.cycle import Core
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.simulate.cluster.world import World

__all__ = ["RULES", "empty", "job", "lives"]

RULES = Rules(starving_seconds=120.0, settling_seconds=10.0)


def empty(draw: Random) -> Cluster:
    """Nodes in two racks, and a tree of queues with and without quotas."""
    width = draw.choice([2, 4, 8])
    nodes = tuple(
        Node(
            name=f"node-{at}",
            gpus=width if draw.random() < 0.9 else width // 2,
            amounts={"cpu": 4 * width},
            labels={"rack": f"rack-{at % 2}"} | ({"disk": "fast"} if at == 0 else {}),
        )
        for at in range(draw.randint(2, 6))
    )
    total = sum(node.gpus for node in nodes)
    count = draw.randint(1, 4)
    queues = [Queue(name="all")]
    for at in range(count):
        own = total // count if draw.random() < 0.7 else 0
        queues.append(
            Queue(
                name=f"queue-{at}",
                parent="all" if draw.random() < 0.5 else "",
                nominal={"gpu": float(own)} if own else {},
                guaranteed={"gpu": 1.0} if own and draw.random() < 0.3 else {},
                limit={"gpu": float(total - 1)} if draw.random() < 0.2 else {},
                weight=draw.choice([1.0, 1.0, 2.0, 0.0]),
                jobs=draw.choice([None, None, None, 3]),
                user_jobs=draw.choice([None, None, None, 2]),
                fenced=draw.random() < 0.1,
                minimum_seconds=draw.choice([0.0, 0.0, 30.0]),
            )
        )
    return Cluster(nodes=nodes, levels=("rack",), queues=tuple(queues), shared={"lic": 2})


def job(draw: Random, number: int, queues: tuple[Queue, ...], now: float) -> Job:
    """Any kind: gang, elastic, fraction, in a rack, with and without a wall time."""
    gpus = draw.choice([1, 1, 1, 2, 2])
    most = draw.choice([1, 1, 2, 3, 4])
    least = draw.randint(1, most) if draw.random() < 0.5 else most
    share = draw.choice([250, 500]) if draw.random() < 0.15 else 0
    role = Role(
        minimum=least,
        maximum=most,
        gpus=0 if share else gpus,
        share=share,
        amounts={"cpu": draw.choice([1, 2])},
        selector={"disk": "fast"} if draw.random() < 0.05 else {},
    )
    return Job(
        name=f"job-{number:03d}",
        queue=draw.choice([queue.name for queue in queues if queue.name != "all"]),
        user=f"user-{draw.randrange(3)}",
        priority=draw.choice([-10, 0, 0, 0, 10]),
        created=now,
        roles=(role,),
        preemptible=draw.random() < 0.85,
        movable=draw.random() < 0.7,
        wall_seconds=draw.choice([None, 60.0, 300.0]),
        grace_seconds=draw.choice([0.0, 5.0]),
        required="rack" if draw.random() < 0.1 else "",
        shared={"lic": 1} if draw.random() < 0.05 else {},
    )


def lives(seed: int, turns: int) -> Iterator[tuple[Cluster, float]]:
    """Rows before each decision of a life, and its time. A core of its own decides."""
    draw = Random(seed)
    decides = Core(RULES)

    def plans(cluster: Cluster, rules: Rules, now: float):
        decides.rules = rules
        decides.plan(cluster, now)
        return decides.everything

    world = World(empty(draw), RULES, plans)
    number, now = 0, 1000.0
    for _ in range(turns):
        now += draw.choice([1.0, 5.0, 40.0, 130.0])
        for _ in range(draw.choice([0, 0, 1, 1, 2, 4])):
            number += 1
            world.submit(job(draw, number, world.cluster.queues, now - draw.random()))
        running = sorted(name for name, each in world.jobs.items() if each.present)
        if running and draw.random() < 0.3:
            world.finish(draw.choice(running), now)
        yield world.cluster, now
        world.decide(now)
        for each in list(world.jobs.values()):
            if any(task.stopping for task in each.tasks) and draw.random() < 0.8:
                world.gone(each.name)
