"""How long anybody waits is bounded, whatever stream of others comes."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.simulate.cluster.engine import simulate
from shoal.simulate.cluster.record import Record
from shoal.simulate.cluster.work import Arrival
from shoal.simulate.cluster.world import World

_STARVING = 300.0
_LONGEST = 120.0


def _run(seed: int, small: int, *, limited: bool = False, walls: bool = False) -> Record:
    """Small jobs, 0.9 of what four nodes of four GPUs can do, and now and then one that wants all."""
    draw = np.random.default_rng(seed)
    arrivals: list[Arrival] = []
    at = 0.0

    def comes(name: str, tasks: int, seconds: float) -> None:
        role = Role(minimum=tasks, maximum=tasks, gpus=1)
        wall = seconds if walls else None
        job = Job(name=name, queue="default", created=at, roles=(role,), wall_seconds=wall)
        arrivals.append(Arrival(at=at, job=job, seconds=seconds))

    for number in range(small):
        at += float(draw.exponential(8.0))
        comes(f"small-{number:04d}", int(draw.choice([1, 1, 2])), float(draw.uniform(60.0, _LONGEST)))
        if number % 80 == 40:
            comes(f"large-{number:04d}", 16, 60.0)
    # where the queue is what is full, there are more nodes than it may use
    count, limit = (8, {"gpu": 16.0}) if limited else (4, {})
    nodes = tuple(Node(name=f"n{each}", gpus=4) for each in range(count))
    queues = (Queue(name="default", nominal=limit, limit=limit),)
    rules = Rules(starving_seconds=_STARVING)
    return simulate(World(Cluster(nodes=nodes, queues=queues), rules), arrivals)


@pytest.mark.slow
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_who_wants_all_starts_once_it_has_starved(seed: int, limited: bool) -> None:
    """scheduling-B5 at random: at the latest when those have ended who ran when it had starved."""
    print(f"seed {seed}, limited {limited}")
    _check(_run(seed, 160, limited=limited), use=0.35 if limited else 0.7)


@pytest.mark.slow
def test_where_lengths_are_known_nobody_has_to_starve() -> None:
    """And one more that has been told a date before keeps it."""
    _check(_run(0, 400, walls=True), use=0.7, dated=1)


def _check(record: Record, use: float, dated: int = 0) -> None:
    assert not record.unfinished
    large = [ran.wait for name, ran in record.jobs.items() if name.startswith("large")]
    assert max(large) <= _STARVING + (1 + dated) * _LONGEST + 1e-6
    assert max(ran.wait for ran in record.jobs.values()) <= _STARVING + 4 * _LONGEST
    assert record.utilisation("gpu") > use
    assert record.preemptions == 0
