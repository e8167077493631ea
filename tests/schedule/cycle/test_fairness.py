"""What dominant resource fairness promises, of whole decisions: queues by weight, gangs all or nothing,
from an empty cluster until nothing changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.simulate.cluster.world import World
from tests.schedule.shares.divisible import divisible

RESOURCES = ("cpu", "memory")
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Problem:
    """Queues of equal jobs of one task each."""

    need: np.ndarray
    """(q, r), of one job."""
    most: np.ndarray
    """(q,): so many jobs."""
    weight: np.ndarray
    capacity: np.ndarray
    """(r,), of the one node."""


@st.composite
def problems(draw: st.DrawFn, most: int = 30, capacity: tuple[int, int] = (6, 30)) -> Problem:
    count = draw(st.integers(2, 4))
    row = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any)
    return Problem(
        need=np.array(draw(st.lists(row, min_size=count, max_size=count)), dtype=float),
        most=np.array(draw(st.lists(st.sampled_from([1, 4, most]), min_size=count, max_size=count))),
        weight=np.array(draw(st.lists(st.integers(1, 3), min_size=count, max_size=count)), dtype=float),
        capacity=np.array(draw(st.tuples(*[st.integers(*capacity)] * 2)), dtype=float),
    )


def started(problem: Problem) -> np.ndarray:
    """(q,): jobs that run once decisions change nothing any more."""
    jobs = [
        Job(name=f"q{queue}-{number:02}", queue=f"q{queue}", roles=(_role(problem.need[queue]),))
        for queue, count in enumerate(problem.most.tolist())
        for number in range(count)
    ]
    queues = tuple(Queue(name=f"q{at}", weight=float(each)) for at, each in enumerate(problem.weight))
    node = Node(name="n", amounts=dict(zip(RESOURCES, map(int, problem.capacity), strict=True)))
    world = World(Cluster(nodes=(node,), queues=queues, jobs=tuple(jobs)), Rules())
    for at in range(50):
        if not world.apply(world.plan(float(at)), float(at)):
            break
        for job in list(world.jobs.values()):
            if any(task.stopping for task in job.tasks):
                world.gone(job.name)
    else:
        raise AssertionError("it does not come to rest")
    held = [job.queue for job in world.jobs.values() if job.tasks]
    return np.array([held.count(f"q{at}") for at in range(len(queues))])


def _role(need: np.ndarray) -> Role:
    amounts = dict(zip(RESOURCES, map(int, need), strict=True))
    return Role(amounts={name: amount for name, amount in amounts.items() if amount})


def useful(need: np.ndarray, amounts: np.ndarray) -> float:
    """Jobs, not whole, that amounts are good for."""
    return float((amounts[need > 0] / need[need > 0]).min())


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(problems())
def test_shares_are_fair_up_to_a_gang(problem: Problem) -> None:
    """scheduling-D3, of whole gangs. Nobody can start that waits; nobody is a gang better off with its
    part of the cluster, or with what is fair of divisible tasks; nor with what another has, less one
    gang of that and less what is left over and too small for who envies."""
    need, most, weight = problem.need, problem.most, problem.weight
    jobs = started(problem)
    left = problem.capacity - (need * jobs[:, None]).sum(axis=0)
    assert (left >= 0).all()
    fair = divisible(need, most.astype(float), problem.capacity, weight)
    for queue in range(len(jobs)):
        if jobs[queue] < most[queue]:
            assert useful(need[queue], left) < 1, "it fits"
        alone = useful(need[queue], problem.capacity * weight[queue] / weight.sum())
        assert jobs[queue] + 1 > min(alone, most[queue]) - _ROUNDING
        assert jobs[queue] + 2 > fair[queue] - _ROUNDING
        for other in np.flatnonzero(jobs):
            ratio = weight[queue] / weight[other]
            less = useful(need[queue], need[other] * (jobs[other] - 1) * ratio)
            assert jobs[queue] + 1 + ratio > min(less, most[queue]) - _ROUNDING


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(problems(most=80, capacity=(20, 150)))
def test_of_many_small_gangs_each_queue_has_its_dominant_share(problem: Problem) -> None:
    """Where a gang is little, what is given is what is fair of divisible tasks; there nobody gains by a
    lie either (`test_tasks`)."""
    fair = divisible(problem.need, problem.most.astype(float), problem.capacity, problem.weight)
    assert (started(problem) + 2 > fair - _ROUNDING).all()
