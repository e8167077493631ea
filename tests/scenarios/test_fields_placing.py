"""Where tasks are, seen from each other; parts of devices; and how fast jobs say that they are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from tests.scenarios.fields import shows
from tests.scenarios.standing import Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

NOTE = 'echo "$SHOAL_ROLE on $SHOAL_NODE" >> $SHOAL_OUTPUT/notes'
STAY = f"{NOTE}; exec sleep 60"


def places(cluster: Standing, job: Job, tasks: int) -> Counter[str]:
    """How many tasks of the job run where, once so many do."""
    cluster.until(job, lambda j: sum(r.running for r in j.status.roles) == tasks, f"{tasks} tasks run")
    return Counter(task.node for task in cluster.tasks(job))


@shows(JOB, "spec.topology.required")
def test_all_of_a_job_is_in_one_domain(cluster: Standing) -> None:
    near = {"topology": {"required": "node"}}
    four = cluster.job(role(STAY, replicas=4, resources={"cpu": "1"}), **near)
    assert places(cluster, four, 4) == {"plain": 4}
    five = cluster.job(role(STAY, replicas=5, resources={"cpu": "1"}), **near)
    assert cluster.waiting(five) == "TooFarApart"
    assert cluster.waiting(cluster.job(role(STAY), topology={"required": "rack"})) == "Unusable"


@shows(JOB, "spec.topology.preferred")
def test_a_job_is_together_where_that_is_possible(cluster: Standing) -> None:
    near = {"topology": {"preferred": "node"}}
    together = cluster.job(role(STAY, replicas=3, resources={"cpu": "1"}), **near)
    assert len(places(cluster, together, 3)) == 1
    cluster.client.cancel("default", together.metadata.name)
    cluster.finished(together)
    apart = cluster.job(role(STAY, replicas=6, resources={"cpu": "1"}), **near)
    assert places(cluster, apart, 6) == {"plain": 4, "gold": 2}


@shows(JOB, "spec.topology.spread")
def test_a_job_is_spread_evenly(cluster: Standing) -> None:
    spread = cluster.job(role(STAY, replicas=4, resources={"cpu": "500m"}), topology={"spread": "node"})
    assert places(cluster, spread, 4) == {"plain": 2, "gold": 2}


@shows(JOB, "spec.roles[].topology.required", "spec.roles[].topology.preferred")
@pytest.mark.parametrize("how", ["required", "preferred"])
def test_the_tasks_of_one_role_are_together(cluster: Standing, how: str) -> None:
    asks: dict[str, Any] = {"resources": {"cpu": "1"}}
    job = cluster.job(
        role(STAY, name="ps", replicas=2, topology={how: "node"}, **asks),
        role(STAY, name="worker", replicas=4, **asks),
    )
    assert places(cluster, job, 6) == {"plain": 4, "gold": 2}
    cluster.until_noted(job, "ps on gold", 0)
    where = {line.split()[2] for line in cluster.notes(job) if line.startswith("ps")}
    assert len(where) == 1


@shows(JOB, "spec.roles[].resources.gpuShare")
def test_tasks_share_a_device(cluster: Standing) -> None:
    script = 'echo "$CUDA_VISIBLE_DEVICES $SHOAL_GPU_SHARE" >> $SHOAL_OUTPUT/notes; exec sleep 60'
    asks = {"resources": {"cpu": "100m", "gpuShare": 0.5}}
    jobs = [cluster.job(role(script, replicas=2, **asks)) for _ in "ab"]
    seen: list[str] = []
    for job in jobs:
        cluster.running(job)
        seen += cluster.until_noted(job, cluster.notes(job)[0] if cluster.notes(job) else "", 0)
    assert cluster.waiting(cluster.job(role(STAY, resources={"cpu": "100m", "gpuShare": 0.6})))
    lines = Counter(line for job in jobs for line in cluster.notes(job))
    assert lines == {"GPU-a 0.5": 2, "GPU-b 0.5": 2}
