"""Clusters after KAI's benchmarks, and bursts: one decision each that has very much to decide.

- `reclaim_large`: KAI's ReclaimLargeJobs_N: all GPUs are held by jobs of a queue that none are meant
  for, and one job of a tenth of the nodes comes to the queue that they are meant for
- `burst`: very many jobs of one GPU come to an empty cluster at once
- `gangs`: very many small gangs, or one large, after Kubernetes' scheduler_perf
"""

from __future__ import annotations

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Task

__all__ = ["burst", "gangs", "reclaim_large"]

_GPUS = 8


def reclaim_large(nodes: int) -> Cluster:
    """`nodes` of 8 GPUs; 8 times as many jobs of one GPU in a queue that deserves none; one job of
    a tenth of the nodes, 8 GPUs a task, in a queue that deserves all."""
    running = [
        Job(
            name=f"small-{at * _GPUS + gpu:06d}",
            queue="queue-0",
            created=float(at * _GPUS + gpu),
            since=float(at * _GPUS + gpu),
            roles=(_ONE_GPU,),
            tasks=(Task(node=f"node-{at:05d}", gpus=(gpu,)),),
        )
        for at in range(nodes)
        for gpu in range(_GPUS)
    ]
    count = max(1, nodes // 10)
    large = Job(
        name="large",
        queue="queue-1",
        created=float(nodes * _GPUS),
        roles=(Role(minimum=count, maximum=count, gpus=_GPUS),),
    )
    queues = (
        Queue(name="queue-0"),
        Queue(name="queue-1", nominal={"gpu": float(nodes * _GPUS)}),
    )
    return Cluster(nodes=_nodes(nodes), queues=queues, jobs=(*running, large))


def burst(nodes: int, jobs: int) -> Cluster:
    """`jobs` of one GPU wait, and `nodes` of 8 GPUs are empty."""
    waiting = tuple(
        Job(name=f"one-{at:06d}", created=float(at), roles=(_ONE_GPU,)) for at in range(jobs)
    )
    return Cluster(nodes=_nodes(nodes), queues=(Queue(name="default"),), jobs=waiting)


def gangs(nodes: int, jobs: int, tasks: int) -> Cluster:
    """`jobs` of so many tasks of one core wait, and `nodes` of 4 cores and 32 GiB are empty."""
    role = Role(minimum=tasks, maximum=tasks, amounts={"cpu": 1})
    waiting = tuple(Job(name=f"gang-{at:05d}", created=float(at), roles=(role,)) for at in range(jobs))
    rows = tuple(
        Node(name=f"node-{at:05d}", amounts={"cpu": 4, "memory": 32 << 30}) for at in range(nodes)
    )
    return Cluster(nodes=rows, queues=(Queue(name="default"),), jobs=waiting)


_ONE_GPU = Role(gpus=1)


def _nodes(count: int) -> tuple[Node, ...]:
    return tuple(Node(name=f"node-{at:05d}", gpus=_GPUS) for at in range(count))
