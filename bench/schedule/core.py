"""Edition 2 of the decision core: cold, with rows remembered, after one event, and a burst.

`python -m bench.schedule.core [--nodes N]`. Figures are processor time of `Core.plan`, which the server
calls. Goals hold for 10,000 nodes; fewer nodes have as many jobs fewer, no goal, and are a quick look.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator

from bench.row import Row, p50, p95, shown, table
from shoal.schedule.core.cycle import Core
from shoal.schedule.cycle.rows import Cluster, Rules
from shoal.schedule.cycle.steps import Plan
from shoal.simulate.cluster import kai
from shoal.simulate.cluster.full import Sizes, full
from shoal.simulate.cluster.world import World

__all__ = ["rows"]

_NODES = 10_000
_NOW = 100_000.0
_SETTLING = 40
"""Decisions after which the cluster is measured, though it may not have come to rest."""


def rows(nodes: int = _NODES, repeats: int = 10) -> Iterator[Row]:
    """Each as soon as it is measured."""
    part = nodes / _NODES
    sizes = Sizes(
        nodes=nodes,
        running=round(5_000 * part),
        waiting=round(2_000 * part),
        racks=max(1, round(400 * part)),
        elastic=0.2,
    )
    core = Core(Rules(edition=2))
    world = World(full(sizes, _NOW), core.rules, lambda cluster, _, now: _everything(core, cluster, now))
    size = f"{nodes:,} nodes, {sizes.running:,} running, {sizes.waiting:,} waiting"
    took, plan = _seconds(lambda: world.plan(_NOW))
    yield Row("core, first decision", _goal(nodes, 1_500.0), 1e3 * took, "ms", size)
    at, settled = _NOW, False
    for _ in range(_SETTLING):
        settled = not world.apply(plan, at)
        for job in list(world.jobs.values()):
            if any(task.stopping for task in job.tasks):
                world.gone(job.name)
        if settled:
            break
        at += 1.0
        plan = world.plan(at)
    state = "at rest" if settled else f"not at rest after {_SETTLING} decisions"
    warm = [_seconds(lambda: world.plan(at))[0] for _ in range(repeats)]
    yield Row(
        "core, rows remembered, p50", _goal(nodes, 200.0), 1e3 * p50(warm), "ms", _spread(warm), state
    )
    event: list[float] = []
    for name in sorted(name for name, job in world.jobs.items() if job.present)[:repeats]:
        at += 1.0
        world.finish(name, at)
        took, plan = _seconds(lambda at=at: world.plan(at))
        world.apply(plan, at)
        event.append(took)
    yield Row(
        "core, one job has ended, p50", _goal(nodes, 10.0), 1e3 * p50(event), "ms", _spread(event), state
    )
    burst = kai.burst(nodes // 2, nodes * 5)
    took, _ = _seconds(lambda: Core(core.rules).plan(burst, 1e6))
    jobs = f"{nodes * 5:,} jobs of one GPU on {nodes // 2:,} nodes"
    yield Row("core, burst", _goal(nodes, 20_000.0), nodes * 5 / took, "jobs/s", jobs, higher=True)


def _goal(nodes: int, goal: float) -> float:
    return goal if nodes == _NODES else math.nan


def _everything(core: Core, cluster: Cluster, now: float) -> Plan:
    core.plan(cluster, now)
    return core.everything


def _seconds(work: Callable[[], Plan]) -> tuple[float, Plan]:
    began = time.thread_time()
    plan = work()
    return time.thread_time() - began, plan


def _spread(values: list[float]) -> str:
    return f"p95 {1e3 * p95(values):.3g} ms, {len(values)} times"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.schedule.core")
    parser.add_argument("--nodes", type=int, default=_NODES)
    asked = parser.parse_args()
    print(table(list(shown(rows(asked.nodes)))))


if __name__ == "__main__":
    main()
