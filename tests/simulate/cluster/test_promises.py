"""Dates that were told: kept, where nothing comes between that they do not hold for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.objects.meta import Stamp
from shoal.schedule.cycle import planner
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.schedule.cycle.steps import Plan, Reserve
from shoal.simulate.cluster.engine import simulate
from shoal.simulate.cluster.record import Record
from shoal.simulate.cluster.work import Arrival
from shoal.simulate.cluster.world import World


def told(seed: int, jobs: int, rules: Rules) -> tuple[Record, dict[str, list[tuple[Stamp, Stamp]]]]:
    """Gangs in one queue, all of known length, some done sooner than they said; for each job when it was
    told which date."""
    draw = np.random.default_rng(seed)
    dates: dict[str, list[tuple[Stamp, Stamp]]] = {}

    def listening(cluster: Cluster, rules: Rules, now: Stamp) -> Plan:
        plan = planner.plan(cluster, rules, now)
        for step in plan.steps:
            if isinstance(step, Reserve) and step.at is not None:
                dates.setdefault(step.job, []).append((now, step.at))
        return plan

    nodes = tuple(Node(name=f"n{at}", gpus=4) for at in range(4))
    arrivals: list[Arrival] = []
    at = 0.0
    for number in range(jobs):
        at += float(draw.exponential(20.0))
        wall = float(draw.choice([60.0, 200.0, 600.0]))
        tasks = int(draw.choice([1, 1, 2, 4, 8, 16]))
        job = Job(
            name=f"j{number:03d}",
            created=at,
            roles=(Role(minimum=tasks, maximum=tasks, gpus=1),),
            wall_seconds=wall,
        )
        arrivals.append(Arrival(at=at, job=job, seconds=wall * float(draw.uniform(0.3, 1.3))))
    world = World(Cluster(nodes=nodes, queues=(Queue(name="default"),)), rules, listening)
    return simulate(world, arrivals), dates


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_date_never_moves_later_and_is_kept(seed: int) -> None:
    """scheduling 1.1: one class, nothing lost, everybody ends by its wall time. (Seeds are printed.)"""
    print(f"seed {seed}")
    record, dates = told(seed, 40, Rules())
    assert not record.unfinished
    assert dates
    for name, said in dates.items():
        best = math.inf
        for now, date in said:
            assert date <= best + 1e-6, f"{name} was told {best:g}, and at {now:g} {date:g}"
            best = min(best, date)
        started = record.jobs[name].started
        assert started is not None
        assert started <= best + 1e-6, f"{name} was told {best:g}, and started at {started:g}"
