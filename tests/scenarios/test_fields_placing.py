"""Where tasks are, seen from each other, on simulated nodes; and parts of devices, on real tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from tests.scenarios import standing
from tests.scenarios.fields import shows
from tests.scenarios.simulated import Simulated, role
from tests.scenarios.standing import Standing

pytestmark = pytest.mark.slow

STAY = "sleep 3600"


def places(simulated: Simulated, job: Job, tasks: int) -> Counter[str]:
    """How many tasks of the job run where, once so many do."""
    simulated.until(job, lambda j: sum(r.running for r in j.status.roles) == tasks, f"{tasks} tasks run")
    return Counter(simulated.places(job).values())


@shows(JOB, "spec.topology.required")
def test_all_of_a_job_is_in_one_domain(simulated: Simulated) -> None:
    near = {"topology": {"required": "node"}}
    four = simulated.job(role(STAY, replicas=4, resources={"cpu": "1"}), **near)
    assert places(simulated, four, 4) == {"plain": 4}
    five = simulated.job(role(STAY, replicas=5, resources={"cpu": "1"}), **near)
    assert simulated.waiting(five) == "TooFarApart"
    assert simulated.waiting(simulated.job(role(STAY), topology={"required": "rack"})) == "Unusable"


@shows(JOB, "spec.topology.preferred")
def test_a_job_is_together_where_that_is_possible(simulated: Simulated) -> None:
    near = {"topology": {"preferred": "node"}}
    together = simulated.job(role(STAY, replicas=3, resources={"cpu": "1"}), **near)
    assert len(places(simulated, together, 3)) == 1
    simulated.cancel(together)
    simulated.finished(together)
    apart = simulated.job(role(STAY, replicas=6, resources={"cpu": "1"}), **near)
    assert places(simulated, apart, 6) == {"plain": 4, "gold": 2}


@shows(JOB, "spec.topology.spread")
def test_a_job_is_spread_evenly(simulated: Simulated) -> None:
    spread = simulated.job(
        role(STAY, replicas=4, resources={"cpu": "500m"}), topology={"spread": "node"}
    )
    assert places(simulated, spread, 4) == {"plain": 2, "gold": 2}


@shows(JOB, "spec.roles[].topology.required", "spec.roles[].topology.preferred")
@pytest.mark.parametrize("how", ["required", "preferred"])
def test_the_tasks_of_one_role_are_together(simulated: Simulated, how: str) -> None:
    asks: dict[str, Any] = {"resources": {"cpu": "1"}}
    job = simulated.job(
        role(STAY, name="ps", replicas=2, topology={how: "node"}, **asks),
        role(STAY, name="worker", replicas=4, **asks),
    )
    assert places(simulated, job, 6) == {"plain": 4, "gold": 2}
    assert len({node for (name, _), node in simulated.places(job).items() if name == "ps"}) == 1


@shows(JOB, "spec.roles[].resources.gpuShare")
@pytest.mark.process
def test_tasks_share_a_device(cluster: Standing) -> None:
    script = 'echo "$CUDA_VISIBLE_DEVICES $SHOAL_GPU_SHARE" >> $SHOAL_OUTPUT/notes; exec sleep 60'
    asks = {"resources": {"cpu": "100m", "gpuShare": 0.5}}
    jobs = [cluster.job(standing.role(script, replicas=2, **asks)) for _ in "ab"]
    seen: list[str] = []
    for job in jobs:
        cluster.running(job)
        seen += cluster.until_noted(job, cluster.notes(job)[0] if cluster.notes(job) else "", 0)
    assert cluster.waiting(
        cluster.job(standing.role("exec sleep 60", resources={"cpu": "100m", "gpuShare": 0.6}))
    )
    lines = Counter(line for job in jobs for line in cluster.notes(job))
    assert lines == {"GPU-a 0.5": 2, "GPU-b 0.5": 2}
