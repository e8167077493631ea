"""Kueue's loads, whether they are through in their time or not."""

from __future__ import annotations

import pytest
from bench.schedule.scale import _run

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role
from shoal.simulate.cluster.kueue import Load
from shoal.simulate.cluster.work import Arrival

ROLE = Role(amounts={"cpu": 1000})


def load(jobs: int) -> Load:
    """One after the other, on a node of two cores of which a queue has both."""
    cluster = Cluster(
        nodes=(Node(name="n", amounts={"cpu": 2000}),),
        queues=(Queue(name="default", nominal={"cpu": 2000.0}),),
    )
    names = [f"j{number:03}" for number in range(jobs)]
    return Load(
        cluster, tuple(Arrival(at=0.0, job=Job(name=n, roles=(ROLE,)), seconds=4.0) for n in names)
    )


def test_a_load_that_is_through_says_how_long_it_took() -> None:
    ran = _run(load(10), 60.0)
    assert ran.through and ran.so_far == ran.why == ""
    assert (ran.jobs, ran.ended, ran.simulated) == (10, 10, pytest.approx(20.0))
    assert (ran.use, ran.bound) == (pytest.approx(1.0), pytest.approx(20.0))
    assert ran.decisions == 5


@pytest.mark.slow
def test_one_that_is_not_says_how_far_it_came() -> None:
    """What has ended, and what runs, counts as use."""
    ran = _run(load(2000), 1.0)
    assert not ran.through
    assert 0 < ran.ended < ran.jobs
    assert ran.simulated == pytest.approx(4.0 * (ran.ended / 2), abs=4.0)
    assert ran.use == pytest.approx(1.0)
    assert ran.so_far == (
        f"; not through: {ran.ended:,} of 2,000 ended by {ran.simulated:.3g} s simulated"
    )
    assert 0.3 <= ran.seconds < 5.0
    assert ran.why.startswith("a decision takes ") and ran.why.endswith(" CPU s")
