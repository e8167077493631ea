"""A plan depends on what rows say, not on the order in which they are listed or arrived."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from shoal.schedule.core.cycle import Core, plan
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role
from tests.schedule.core.clusters import RULES, lives

pytestmark = pytest.mark.slow

TURNS = 12


def shuffled(cluster: Cluster, draw: Random) -> Cluster:
    def mixed(rows):
        return tuple(draw.sample(rows, len(rows)))

    jobs = [
        msgspec.structs.replace(
            job, tasks=mixed(job.tasks), reserved=mixed(job.reserved), place=mixed(job.place)
        )
        for job in cluster.jobs
    ]
    return msgspec.structs.replace(
        cluster, nodes=mixed(cluster.nodes), queues=mixed(cluster.queues), jobs=mixed(jobs)
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_is_the_same_for_permuted_rows(seed: int) -> None:
    draw = Random(seed)
    for cluster, now in lives(seed, TURNS):
        expected = msgspec.json.encode(plan(cluster, RULES, now))
        assert msgspec.json.encode(plan(shuffled(cluster, draw), RULES, now)) == expected, (seed, now)


@pytest.mark.parametrize("seed", range(100, 108))
def test_a_core_with_a_memory_decides_the_same_for_permuted_rows(seed: int) -> None:
    draw = Random(seed)
    one, other = Core(RULES), Core(RULES)
    for cluster, now in lives(seed, TURNS):
        other.plan(shuffled(cluster, draw), now)
        one.plan(cluster, now)
        found, expected = other.everything, one.everything
        assert msgspec.json.encode(found) == msgspec.json.encode(expected), (seed, now)


@pytest.mark.parametrize("seed", range(200, 208))
def test_a_full_recompute_decides_the_same_as_changed_rows(seed: int) -> None:
    carried, fresh = Core(RULES), Core(RULES)
    for cluster, now in lives(seed, TURNS):
        fresh.forget_rows()
        fresh.plan(cluster, now)
        carried.plan(cluster, now)
        found, expected = carried.everything, fresh.everything
        assert msgspec.json.encode(found) == msgspec.json.encode(expected), (seed, now)


def test_a_resource_that_no_row_named_before_is_counted() -> None:
    core = Core(RULES)
    cluster = Cluster(
        nodes=(Node(name="node", gpus=1),),
        queues=(Queue(name="default"),),
        jobs=(Job(name="known", roles=(Role(gpus=1),)),),
    )
    core.plan(cluster, 0.0)
    job = Job(name="other", created=1.0, roles=(Role(amounts={"fpga": 1}),))
    core.plan(msgspec.structs.replace(cluster, jobs=(*cluster.jobs, job)), 1.0)
    assert [step.code for step in core.everything.steps if step.job == "other"] == ["TooLarge"]
