"""What is wrong with a scenario as a whole, though each of its parts can be read.

Not wrong is a job that is larger than the cluster, or queues that are promised more than there is, all
together: those can be, and the decision has to say what comes of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.objects.nearest import did_you_mean
from shoal.schedule.cycle.rows import Cluster, Job, Queue
from shoal.schedule.cycle.sizes.outlook import check
from shoal.simulate.scenario.jobs import Entry
from shoal.simulate.scenario.spot import Spot

__all__ = ["NODE", "check_jobs", "check_queues"]

NODE = "node"
"""The level of the topology below all that a file names."""


def check_queues(spot: Spot | None, cluster: Cluster) -> None:
    """Raises `BadInput` for queues above themselves, numbers of one queue that cannot all be kept, more
    than the cluster has for one queue, more guaranteed than there is, and weights that leave nobody
    anything."""
    if spot is None:
        return
    queues = {queue.name: queue for queue in cluster.queues}
    for queue in cluster.queues:
        _check_above(spot, queue, queues)
    capacity = _capacity(cluster)
    nominal = _totals(cluster.queues, "nominal")
    guaranteed = _totals(cluster.queues, "guaranteed")
    for at, queue in enumerate(cluster.queues):
        here = spot.items()[at]
        for name, amount in queue.nominal.items():
            if amount > capacity.get(name, 0):
                has = capacity.get(name, 0)
                raise here.wrong(
                    f"queue {queue.name} has nominal {name} {amount:g}, and the cluster has {has:g}"
                )
        for name, amount in guaranteed[queue.name].items():
            if amount > nominal[queue.name].get(name, 0):
                own = nominal[queue.name].get(name, 0)
                raise here.wrong(
                    f"queue {queue.name} is guaranteed {name} {amount:g}, above its nominal {own:g}"
                )
        for name, amount in nominal[queue.name].items():
            if amount > queue.limit.get(name, amount):
                most = queue.limit[name]
                raise here.wrong(
                    f"queue {queue.name} has nominal {name} {amount:g}, above its limit {most:g}"
                )
    for name, has in capacity.items():
        promised = sum(guaranteed[q.name].get(name, 0) for q in cluster.queues if not q.parent)
        if promised > has:
            raise spot.wrong(
                f"queues are guaranteed {promised:g} {name} together, and the cluster has {has:g}"
            )
    _check_weights(spot, cluster.queues, nominal)


def check_jobs(entries: Sequence[Entry], cluster: Cluster) -> None:
    """Raises `BadInput` for a name that two jobs have, a queue, level or licence that there is not,
    licences that more hold than can, and curves and amounts of work that cannot be."""
    queues = {queue.name for queue in cluster.queues}
    levels = (*cluster.levels, NODE)
    names: set[str] = set()
    left = dict(cluster.shared)
    for entry in entries:
        job, spot = entry.job, entry.spot
        if job.name in names:
            raise spot.wrong(f"there are two jobs {job.name}")
        names.add(job.name)
        if job.queue not in queues:
            near = did_you_mean(job.queue, queues)
            raise spot.wrong(f"{job.name} is in queue {job.queue}, which there is not{near}")
        for level in (job.required, job.preferred, job.spread, *_levels(job)):
            if level and level not in levels:
                near = did_you_mean(level, levels) or f"; there are {', '.join(levels)}"
                raise spot.wrong(f"the topology has no level {level}{near}")
        for name in job.shared:
            if name not in cluster.shared:
                raise spot.wrong(f"nobody has {name}, which {job.name} needs; see `shared`")
        try:
            check(job)
        except ValueError as error:
            raise spot.wrong(str(error)) from error
        if job.wall_seconds == 0:
            raise spot.wrong(f"{job.name} has no time: wallTime is more than 0")
        if len({(task.role, task.index) for task in job.tasks}) < len(job.tasks):
            raise spot.wrong(f"two tasks of {job.name} have one index")
        for name, amount in job.shared.items() if job.tasks else ():
            left[name] -= amount
            if left[name] < 0:
                raise spot.wrong(f"those who run hold more of {name} than there is")


def _levels(job: Job) -> list[str]:
    return [level for role in job.roles for level in (role.required, role.preferred)]


def _check_above(spot: Spot, queue: Queue, queues: dict[str, Queue]) -> None:
    """That the way up from a queue ends."""
    way = [queue.name]
    while parent := queues[way[-1]].parent:
        way.append(parent)
        if parent == queue.name:
            raise spot.wrong(f"queues are above themselves: {' -> '.join(way)}")
        if len(way) > len(queues):
            return  # the circle is further up, and told of from there


def _capacity(cluster: Cluster) -> dict[str, float]:
    total: dict[str, float] = {"gpu": float(sum(node.gpus for node in cluster.nodes))}
    for node in cluster.nodes:
        for name, amount in node.amounts.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _totals(queues: Sequence[Queue], which: str) -> dict[str, dict[str, float]]:
    """Of each queue: what is stated, or what those below it have together where that is more."""
    children: dict[str, list[str]] = {}
    for queue in queues:
        children.setdefault(queue.parent, []).append(queue.name)
    stated: dict[str, dict[str, float]] = {queue.name: getattr(queue, which) for queue in queues}
    totals: dict[str, dict[str, float]] = {}
    order = [""]
    for name in order:
        order.extend(children.get(name, []))
    for name in reversed(order[1:]):
        below: dict[str, float] = {}
        for child in children.get(name, []):
            for resource, amount in totals[child].items():
                below[resource] = below.get(resource, 0.0) + amount
        mine = stated[name]
        both = {**below, **mine}
        totals[name] = {each: max(mine.get(each, 0.0), below.get(each, 0.0)) for each in both}
    return totals


def _check_weights(spot: Spot, queues: Sequence[Queue], nominal: dict[str, dict[str, float]]) -> None:
    """Siblings that all weigh nothing and have nothing of their own would get nothing by right."""
    families: dict[str, list[Queue]] = {}
    for queue in queues:
        families.setdefault(queue.parent, []).append(queue)
    for family in families.values():
        idle = all(queue.weight == 0 and not any(nominal[queue.name].values()) for queue in family)
        if idle:
            names = ", ".join(queue.name for queue in family)
            raise spot.wrong(f"weights of 0 and nothing of their own: {names} would get nothing")
