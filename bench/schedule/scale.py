"""What a whole decision costs where there is much to decide: full clusters, bursts, and Kueue's loads.

`python -m bench.schedule.scale [--quick]`; `--quick` leaves out what takes minutes. Times are processor
time of the planner; in the runs of Kueue's loads that of the simulation around it too, and a load that
is not through in its time says how far it came.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.row import Row, p50, shown, table
from shoal.schedule.cycle import planner
from shoal.schedule.cycle.rows import Cluster, Job, Rules
from shoal.schedule.cycle.steps import Plan, Start
from shoal.simulate.cluster import kai, kueue
from shoal.simulate.cluster.engine import Options, simulate
from shoal.simulate.cluster.full import Sizes, full
from shoal.simulate.cluster.world import World

__all__ = ["rows"]

_NOW = 100_000.0
_BUDGET = 20.0
"""Processor seconds for the repetitions of one row, of which there is one at least."""
_LIMITS = {"baseline": 120.0, "large-scale": 90.0, "topology": 30.0}
"""Processor seconds for each of Kueue's loads."""
_INTERVAL = 0.01
"""Seconds of virtual time between decisions on Kueue's loads at least."""


def rows(quick: bool = False) -> Iterator[Row]:
    """The goals' rows, and beside them KAI's and Kubernetes' loads, which are published without a time
    that compares. Each as soon as it is measured, what takes longest last."""
    yield from _gangs()
    yield _reclaim(100)
    yield _burst()
    if quick:
        return
    yield _reclaim(1000)
    yield _memory()
    yield from _full()
    yield from _kueue_15000()
    yield _kueue_50000()
    yield _kueue_racks()


def _full() -> Iterator[Row]:
    """Many come at once; the same from scratch when all who can have started, and as a planner decides
    that remembers the rows; and when one has ended."""
    sizes = Sizes(running=4_500, waiting=3_000, elastic=0.2)
    world = World(full(sizes, _NOW), Rules())
    at, first = _settled(world)
    cluster = world.cluster
    running = sum(bool(job.tasks) for job in cluster.jobs)
    state = f"{running:,} running, {len(cluster.jobs) - running:,} waiting"
    took = _times(lambda: planner.plan(cluster, Rules(), at), 20)
    spread, peer = f"{len(took)} times, {state}", "KAI: 3 to 4 minutes at 1,000 nodes (published)"
    yield Row("full decision, p50", 100.0, 1e3 * p50(took), "ms", spread, peer)
    yield Row("full decision, p99", 300.0, 1e3 * _p99(took), "ms", spread, peer)
    again = _times(lambda: world.plan(at), 20)
    beside = f"largest {1e3 * max(again):.3g} ms"
    yield Row(
        "the same, rows remembered, p50", 100.0, 1e3 * p50(again), "ms", f"{len(again)} times", beside
    )
    yield Row(f"the same, {sizes.waiting:,} come at once", 1000.0, 1e3 * first, "ms", "once")
    after = _after_events(world, at)
    spread = f"median {1e3 * p50(after):.3g} ms, {len(after)} times"
    peer = "kube-scheduler: 3.7 to 5.7 ms for a gang at 5,000 nodes (published)"
    yield Row("decision after one event, p99", 10.0, 1e3 * _p99(after), "ms", spread, peer)


def _after_events(world: World, at: float) -> list[float]:
    """A job ends, the oldest first, and the planner says what that changes."""
    names = sorted((job.since, job.name) for job in world.jobs.values() if job.present)
    took: list[float] = []
    for number, (_, name) in enumerate(names):
        if name not in world.jobs or not world.jobs[name].present:
            continue
        at += 1.0
        world.finish(name, at)
        began = time.thread_time()
        plan = world.plan(at)
        took.append(time.thread_time() - began)
        world.apply(plan, at)
        if number >= 100 or sum(took) > _BUDGET:
            break
    return took


def _settled(world: World, most: int = 4) -> tuple[float, float]:
    """Decide until nothing changes, a few times at most; those who are told to go are gone. The time at
    which that is, and what the first decision took."""
    at, took = _NOW, math.nan
    for _ in range(most):
        began = time.thread_time()
        plan = world.plan(at)
        took = time.thread_time() - began if math.isnan(took) else took
        changed = world.apply(plan, at)
        for job in list(world.jobs.values()):
            if any(task.stopping for task in job.tasks):
                world.gone(job.name)
        at += 1.0
        if not changed:
            break
    return at, took


def _memory() -> Row:
    """Of a process that makes the rows of the full cluster and decides once."""
    told = subprocess.run(
        [sys.executable, "-m", "bench.schedule.scale", "--memory"],
        capture_output=True,
        check=True,
        text=True,
        timeout=600,
    )
    return Row("memory of a decision over 100,000 GPUs", 1000.0, float(told.stdout), "MB")


def _burst() -> Row:
    nodes, jobs = 5_000, 50_000
    cluster = kai.burst(nodes, jobs)
    started = min(nodes * 8, jobs)
    took = _times(lambda: _starts(cluster, started), 3)
    return Row(
        f"burst of {jobs:,} one-GPU jobs on {nodes:,} nodes, whole decision",
        50_000.0,
        jobs / p50(took),
        "jobs/s",
        f"{started:,} start",
        "kube-scheduler 810/s, YuniKorn 410 to 833/s through an API server (published)",
        higher=True,
    )


def _reclaim(nodes: int) -> Row:
    cluster = kai.reclaim_large(nodes)
    took = _times(lambda: planner.plan(cluster, Rules(), 1e6), 5)
    return Row(
        f"ReclaimLargeJobs, {nodes:,} nodes: {nodes * 8:,} jobs of one GPU, one of {nodes // 10 * 8:,}",
        1000.0,
        1e3 * p50(took),
        "ms",
    )


def _gangs() -> Iterator[Row]:
    for jobs, tasks, goal in ((1000, 3, 3.7 * 1000), (3000, 3, 5.7 * 3000), (1, 1500, 100.0)):
        cluster = kai.gangs(5_000, jobs, tasks)
        took = _times(lambda cluster=cluster, jobs=jobs: _starts(cluster, jobs), 3)
        what = f"{jobs:,} gangs of {tasks:,} on 5,000 nodes, whole decision"
        beside = "kube-scheduler: 3.7 to 5.7 ms a gang" if tasks == 3 else ""
        yield Row(what, goal, 1e3 * p50(took), "ms", beside=beside)


def _kueue_15000() -> Iterator[Row]:
    ran = _run(kueue.baseline(), _LIMITS["baseline"])
    ended = ran.simulated if ran.through else math.inf
    beside = f"Kueue 351 s (published); bound {ran.bound:g} s"
    what = "Kueue's generator, 15,000 workloads, simulated"
    yield Row(what, 73.0, ended, "s", f"{ran.use:.1%} used{ran.so_far}", beside, why=ran.why)
    spread = f"{ran.decided}{ran.so_far}"
    yield Row("the same, processor time", 5.0, ran.seconds, "CPU s", spread, why=ran.why)


def _kueue_50000() -> Row:
    ran = _run(kueue.large_scale(), _LIMITS["large-scale"])
    return Row(
        "Kueue's generator, 50,000 workloads, processor time",
        30.0,
        ran.seconds,
        "CPU s",
        f"{ran.decided}, {ran.simulated:.3g} s simulated, {ran.use:.1%} used{ran.so_far}",
        f"Kueue 1,179 s simulated (published); bound {ran.bound:g} s",
        why=ran.why,
    )


def _kueue_racks() -> Row:
    """There is no goal but to be done before Kueue is."""
    ran = _run(kueue.topology(), _LIMITS["topology"])
    return Row(
        "Kueue's generator, 15,000 gangs in racks, simulated",
        401.0,
        ran.simulated if ran.through else math.inf,
        "s",
        f"{ran.seconds:.3g} CPU s, {ran.decided}{ran.so_far}",
        f"Kueue 401 s (published); bound {ran.bound:g} s",
        why=ran.why,
    )


@dataclass(frozen=True, kw_only=True)
class _Ran:
    """What came of a load, up to its end or to that of its time."""

    jobs: int
    ended: int
    simulated: float
    """Seconds of virtual time."""
    use: float
    """Of the queues' cores, up to then."""
    seconds: float
    """Processor time."""
    decisions: int
    bound: float

    @property
    def through(self) -> bool:
        return self.ended == self.jobs

    @property
    def decided(self) -> str:
        return f"{self.decisions:,} decisions"

    @property
    def so_far(self) -> str:
        """How far it came, where that is not to the end."""
        if self.through:
            return ""
        return (
            f"; not through: {self.ended:,} of {self.jobs:,} ended by {self.simulated:.3g} s simulated"
        )

    @property
    def why(self) -> str:
        """It is no more than a part; empty if it is all."""
        if self.through:
            return ""
        each = 1e3 * self.seconds / self.decisions
        return f"a decision takes {each:.3g} ms, so the load was ended after {self.seconds:.3g} CPU s"


class _Over(Exception):
    """Its time is over."""


class _Limited(World):
    """Decides until so much processor time is gone, and knows how much has been done by then."""

    def __init__(self, load: kueue.Load, limit: float) -> None:
        super().__init__(load.cluster, Rules())
        self._until = time.thread_time() + limit
        self.decisions = self.ended = 0
        self.now = self._done = 0.0

    def plan(self, now: float) -> Plan:
        self.now = now
        if time.thread_time() > self._until:
            raise _Over
        self.decisions += 1
        return super().plan(now)

    def finish(self, name: str, now: float) -> None:
        self._done += _work(self.jobs[name], now)
        super().finish(name, now)
        self.ended += 1

    @property
    def worked(self) -> float:
        """Cores (in thousandths) times seconds, of what has ended and of what runs."""
        return self._done + sum(_work(job, self.now) for job in self.jobs.values())


def _work(job: Job, now: float) -> float:
    """What it has had since it began; what it had before it lost its place is lost."""
    cores = {role.name: role.amounts["cpu"] for role in job.roles}
    return sum(cores[task.role] for task in job.present) * (now - job.since)


def _run(load: kueue.Load, limit: float) -> _Ran:
    """Raises RuntimeError where nothing more can happen, and not all have ended."""
    world = _Limited(load, limit)
    began = time.thread_time()
    try:
        record = simulate(world, load.arrivals, Options(interval=_INTERVAL))
    except _Over:
        simulated = world.now
    else:
        if record.unfinished:
            raise RuntimeError(f"{len(record.unfinished)} jobs have not ended")
        simulated = record.ended_at
    owned = sum(queue.nominal.get("cpu", 0.0) for queue in load.cluster.queues)
    return _Ran(
        jobs=len(load.arrivals),
        ended=world.ended,
        simulated=simulated,
        use=world.worked / (simulated * owned) if simulated else 0.0,
        seconds=time.thread_time() - began,
        decisions=world.decisions,
        bound=load.bound,
    )


def _starts(cluster: Cluster, count: int) -> None:
    plan = planner.plan(cluster, Rules(), 1e6)
    if sum(isinstance(step, Start) for step in plan.steps) != count:
        raise RuntimeError(f"{count:,} jobs should start")


def _times(work: Callable[[], object], most: int) -> list[float]:
    took: list[float] = []
    while not took or (len(took) < most and sum(took) < _BUDGET):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return took


def _p99(values: list[float]) -> float:
    """By the nearest rank: of fewer than a hundred it is the largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.schedule.scale")
    parser.add_argument("--quick", action="store_true", help="without what takes minutes")
    parser.add_argument("--memory", action="store_true", help="decide once and print the peak in MB")
    told = parser.parse_args()
    if told.memory:
        planner.plan(full(now=_NOW), Rules(), _NOW)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
        return
    print(table(list(shown(rows(told.quick)))))


if __name__ == "__main__":
    main()
