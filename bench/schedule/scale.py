"""What a whole decision costs where there is much to decide: full clusters, bursts, and Kueue's loads.

`python -m bench.schedule.scale [--quick]`; `--quick` leaves out what takes minutes. Times are processor
time of the planner; in the runs of Kueue's loads that of the simulation around it too.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from bench.row import Row, p50, table
from shoal.schedule.cycle import planner
from shoal.schedule.cycle.rows import Cluster, Rules
from shoal.schedule.cycle.steps import Start
from shoal.simulate.cluster import kai, kueue
from shoal.simulate.cluster.engine import Options, simulate
from shoal.simulate.cluster.full import Sizes, full
from shoal.simulate.cluster.world import World

__all__ = ["rows"]

_NOW = 100_000.0
_BUDGET = 60.0
"""Processor seconds for the repetitions of one row, of which there is one at least."""
_INTERVAL = 0.01
"""Seconds of virtual time between decisions on Kueue's loads at least."""


def rows(quick: bool = False) -> list[Row]:
    """The goals' rows, and beside them KAI's and Kubernetes' loads, which are published without a time
    that compares."""
    found = [_burst(), _reclaim(100), *_gangs()]
    if not quick:
        found += [*_full(), _memory(), _reclaim(1000), *_kueue_15000(), _kueue_50000(), _kueue_racks()]
    return found


def _full() -> Iterator[Row]:
    """Many come at once; the same from scratch when all who can have started, and as a planner decides
    that remembers the rows; and when one has ended."""
    sizes = Sizes(running=4_500, waiting=3_000, elastic=0.2)
    world = World(full(sizes, _NOW), Rules())
    at, first = _settled(world)
    cluster = world.cluster
    running = sum(bool(job.tasks) for job in cluster.jobs)
    beside = f"{running:,} running, {len(cluster.jobs) - running:,} waiting"
    took = _times(lambda: planner.plan(cluster, Rules(), at), 20)
    spread = f"{len(took)} times"
    yield Row("full decision, p50", 100.0, 1e3 * p50(took), "ms", spread, beside)
    yield Row("full decision, p99", 300.0, 1e3 * _p99(took), "ms", spread)
    again = _times(lambda: world.plan(at), 20)
    beside = f"largest {1e3 * max(again):.3g} ms"
    yield Row(
        "the same, rows remembered, p50", 100.0, 1e3 * p50(again), "ms", f"{len(again)} times", beside
    )
    yield Row(f"the same, {sizes.waiting:,} come at once", 1000.0, 1e3 * first, "ms", "once")
    after = _after_events(world, at)
    spread = f"median {1e3 * p50(after):.3g} ms, {len(after)} times"
    yield Row("decision after one event, p99", 10.0, 1e3 * _p99(after), "ms", spread)


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
    load = kueue.baseline()
    ended, use, seconds, decisions = _run(load)
    beside = f"published 351 s; bound {load.bound:g} s"
    yield Row(
        "Kueue's generator, 15,000 workloads, simulated", 73.0, ended, "s", f"{use:.1%} used", beside
    )
    yield Row("the same, processor time", 5.0, seconds, "CPU s", f"{decisions:,} decisions")


def _kueue_50000() -> Row:
    load = kueue.large_scale()
    ended, use, seconds, decisions = _run(load)
    return Row(
        "Kueue's generator, 50,000 workloads, processor time",
        30.0,
        seconds,
        "CPU s",
        f"{decisions:,} decisions, {ended:.3g} s simulated, {use:.1%} used",
        f"published 1,179 s simulated; bound {load.bound:g} s",
    )


def _kueue_racks() -> Row:
    """There is no goal but to be done before Kueue is."""
    load = kueue.topology()
    ended, _, seconds, decisions = _run(load)
    return Row(
        "Kueue's generator, 15,000 gangs in racks, simulated",
        401.0,
        ended,
        "s",
        f"{seconds:.3g} CPU s, {decisions:,} decisions",
        f"published 401 s; bound {load.bound:g} s",
    )


def _run(load: kueue.Load) -> tuple[float, float, float, int]:
    """Seconds simulated; use of the queues' cores; processor time; decisions. Raises RuntimeError where
    not all have ended."""
    world = World(load.cluster, Rules())
    began = time.thread_time()
    record = simulate(world, load.arrivals, Options(interval=_INTERVAL))
    seconds = time.thread_time() - began
    if record.unfinished:
        raise RuntimeError(f"{len(record.unfinished)} jobs have not ended")
    nodes = sum(node.amounts["cpu"] for node in load.cluster.nodes)
    owned = sum(queue.nominal.get("cpu", 0.0) for queue in load.cluster.queues)
    return (
        record.ended_at,
        record.utilisation("cpu") * nodes / owned,
        seconds,
        len(record.decision_seconds),
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
    print(table(rows(told.quick)))


if __name__ == "__main__":
    main()
