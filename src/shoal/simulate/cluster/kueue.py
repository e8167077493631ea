"""The three loads with which Kueue measures itself: many short jobs of three sizes in many queues.

After the generator configurations of Kueue's performance tests (`baseline`, `large-scale`, `tas`). Each
queue has 20 CPU of its own and may borrow 100 in its cohort; each class of jobs comes to each queue at
an even pace from 0 on. A job that loses its place begins anew. Cores are counted in thousandths.

In the first two there are no nodes, quotas are all there is: one node has all that the queues have. In
`topology` there are 640 of 96 cores and 256 GiB, in ten racks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role
from shoal.simulate.cluster.work import Arrival

__all__ = ["Load", "baseline", "large_scale", "topology"]

_CORE = 1000
_NOMINAL = 20.0 * _CORE
_BORROWING = 100.0 * _CORE


@dataclass(frozen=True)
class Load:
    """A cluster, and the jobs that come to it."""

    cluster: Cluster
    arrivals: tuple[Arrival, ...]

    @property
    def bound(self) -> float:
        """Seconds that the jobs take at least, with all the queues' cores in use from 0 to the end."""
        work = sum(arrival.seconds * _cores(arrival.job) for arrival in self.arrivals)
        return work / sum(queue.nominal.get("cpu", 0.0) for queue in self.cluster.queues)


@dataclass(frozen=True)
class _Class:
    """So many jobs to each queue, `every` milliseconds one, each running for `runs` milliseconds."""

    name: str
    count: int
    every: int
    runs: int
    priority: int
    roles: Callable[[int], Role]
    """By the number of the job in its class and queue."""


def baseline() -> Load:
    """15,000 jobs to 30 queues in 5 cohorts."""
    classes = (
        _plain("small", 350, 100, 200, 50, 1),
        _plain("medium", 100, 500, 500, 100, 5),
        _plain("large", 50, 1200, 1000, 200, 20),
    )
    return _load(5, 6, classes, _one_node(5 * 6), ())


def large_scale() -> Load:
    """50,000 jobs to 1,000 queues in 10 cohorts."""
    classes = (
        _plain("small", 35, 60, 150, 50, 1),
        _plain("medium", 11, 300, 350, 100, 5),
        _plain("large", 4, 700, 700, 200, 20),
    )
    return _load(10, 100, classes, _one_node(10 * 100), ())


def topology() -> Load:
    """`baseline` as gangs, a third of each class bound to one rack, a third that would rather be in one,
    a third that is spread evenly over the racks."""
    classes = (
        _Class("small", 350, 100, 200, 50, _in_racks((120, 120, 110), 2, 500)),
        _Class("medium", 100, 500, 500, 100, _in_racks((34, 33, 33), 4, 1250)),
        _Class("large", 50, 1200, 1000, 200, _in_racks((17, 17, 16), 8, 2500)),
    )
    nodes = tuple(
        Node(
            name=f"rack{rack}-{at:02d}",
            amounts={"cpu": 96 * _CORE, "memory": 256 << 30},
            labels={"block": "block0", "rack": f"rack{rack}"},
        )
        for rack in range(10)
        for at in range(64)
    )
    return _load(5, 6, classes, nodes, ("block", "rack"))


def _plain(name: str, count: int, every: int, runs: int, priority: int, cores: int) -> _Class:
    role = Role(amounts={"cpu": cores * _CORE})
    return _Class(name, count, every, runs, priority, lambda _: role)


def _in_racks(thirds: tuple[int, int, int], pods: int, cores: int) -> Callable[[int], Role]:
    amounts = {"cpu": cores}
    bound = Role(minimum=pods, maximum=pods, amounts=amounts, required="rack")
    rather = Role(minimum=pods, maximum=pods, amounts=amounts, preferred="rack")
    even = Role(minimum=pods, maximum=pods, amounts=amounts)

    def of(number: int) -> Role:
        if number < thirds[0]:
            return bound
        return rather if number < thirds[0] + thirds[1] else even

    return of


def _one_node(queues: int) -> tuple[Node, ...]:
    return (Node(name="all", amounts={"cpu": queues * 20 * _CORE}),)


def _load(
    cohorts: int, queues: int, classes: Sequence[_Class], nodes: Sequence[Node], levels: tuple[str, ...]
) -> Load:
    rows: list[Queue] = []
    arrivals: list[Arrival] = []
    for cohort in range(cohorts):
        # a cohort is for itself: what it has not, it cannot borrow from another
        rows.append(Queue(name=f"cohort{cohort}", limit={"cpu": queues * _NOMINAL}))
        for queue in range(queues):
            name = f"queue{cohort}-{queue}"
            own, borrowed = {"cpu": _NOMINAL}, {"cpu": _BORROWING}
            rows.append(Queue(name=name, parent=f"cohort{cohort}", nominal=own, borrowing=borrowed))
            for each in classes:
                arrivals += _jobs(name, each, spread="rack" if levels else "")
    arrivals.sort(key=lambda arrival: (arrival.at, arrival.job.name))
    cluster = Cluster(nodes=tuple(nodes), queues=tuple(rows), levels=levels)
    return Load(cluster, tuple(arrivals))


def _jobs(queue: str, each: _Class, spread: str) -> list[Arrival]:
    found: list[Arrival] = []
    for number in range(each.count):
        at, role = number * each.every / 1000, each.roles(number)
        job = Job(
            name=f"{queue}-{each.name}-{number:03d}",
            queue=queue,
            priority=each.priority,
            created=at,
            roles=(role,),
            spread="" if role.required or role.preferred else spread,
        )
        found.append(Arrival(at=at, job=job, seconds=each.runs / 1000, keeps=False))
    return found


def _cores(job: Job) -> float:
    return sum(role.minimum * role.amounts["cpu"] for role in job.roles)
