"""What queues own, lend and borrow, each field shown on jobs that run in two of them."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB, QUEUE
from tests.scenarios.fields import shows
from tests.scenarios.standing import Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

STAY = "exec sleep 60"
BOTH = {"resources": {"cpu": "100m", "gpu": 2}}
"""All the devices that there are."""
ONE = {"resources": {"cpu": "100m", "gpu": 1}}
RESOURCES = [
    ("cpu", "6", {"cpu": "2"}),
    ("memory", "3Gi", {"cpu": "100m", "memory": "1000Mi"}),
    ("gpu", 2, {"cpu": "100m", "gpu": 1}),
]
"""All that there is of each, and what a third (of devices, a half) of it is to a task."""


def name_of(cluster: Standing, **spec: Any) -> str:
    return cluster.queue(**spec).metadata.name


def ended_by(cluster: Standing, job: Job, reason: str) -> None:
    """Wait until all of it has given way."""
    cluster.until(job, lambda j: j.status.allocation.reason == reason, f"it is {reason}")


@shows(QUEUE, "spec.parent")
def test_what_is_said_of_a_queue_is_said_of_all_below_it(cluster: Standing) -> None:
    above = name_of(cluster, quota={"cpu": "1"})
    one, other = name_of(cluster, parent=above), name_of(cluster, parent=above)
    first = cluster.job(role(STAY, resources={"cpu": "600m"}), queue=one)
    cluster.running(first)
    second = cluster.job(role(STAY, resources={"cpu": "600m"}), queue=other)
    assert cluster.waiting(second) == "Limit"
    assert cluster.look(second).status.scheduling.evidence["queue"] == above
    cluster.client.cancel("default", first.metadata.name)
    cluster.running(second)


@shows(QUEUE, "spec.nominal.cpu", "spec.nominal.memory", "spec.nominal.gpu")
@pytest.mark.parametrize(("resource", "all_of_it", "part"), RESOURCES)
def test_what_is_a_queues_own_comes_back(
    cluster: Standing, resource: str, all_of_it: object, part: dict[str, Any]
) -> None:
    owner, guest = name_of(cluster, nominal={resource: all_of_it}), name_of(cluster)
    count = 2 if resource == "gpu" else 3
    lent = cluster.job(role(STAY, replicas=count, resources=part), queue=guest)
    cluster.running(lent)
    own = cluster.job(role(STAY, resources=part), queue=owner)
    cluster.running(own)
    ended_by(cluster, lent, "Preempted")


@shows(QUEUE, "spec.guaranteed.cpu", "spec.guaranteed.memory", "spec.guaranteed.gpu")
@pytest.mark.parametrize(("resource", "all_of_it", "part"), RESOURCES)
def test_what_is_guaranteed_is_never_lent(
    cluster: Standing, resource: str, all_of_it: object, part: dict[str, Any]
) -> None:
    amounts = {resource: all_of_it}
    owner = name_of(cluster, nominal=amounts, guaranteed=amounts)
    other = cluster.job(role(STAY, resources=part), queue=name_of(cluster))
    assert cluster.waiting(other) in ("Kept", "OverLimit")
    cluster.running(cluster.job(role(STAY, resources=part), queue=owner))


@shows(QUEUE, "spec.borrowing.cpu", "spec.borrowing.memory", "spec.borrowing.gpu")
@pytest.mark.parametrize(("resource", "all_of_it", "part"), RESOURCES)
def test_a_queue_borrows_no_more_than_it_may(
    cluster: Standing, resource: str, all_of_it: object, part: dict[str, Any]
) -> None:
    queue = name_of(cluster, borrowing={resource: part[resource]})
    cluster.running(cluster.job(role(STAY, resources=part), queue=queue))
    second = cluster.job(role(STAY, resources=part), queue=queue)
    assert cluster.waiting(second) == "Borrowing"
    assert cluster.look(second).status.scheduling.evidence["resource"] == resource


@shows(QUEUE, "spec.lending.cpu", "spec.lending.memory", "spec.lending.gpu")
@pytest.mark.parametrize(("resource", "all_of_it", "part"), RESOURCES)
def test_a_queue_lends_no_more_than_it_says(
    cluster: Standing, resource: str, all_of_it: object, part: dict[str, Any]
) -> None:
    name_of(cluster, nominal={resource: all_of_it}, lending={resource: part[resource]})
    guest = name_of(cluster)
    cluster.running(cluster.job(role(STAY, resources=part), queue=guest))
    assert cluster.waiting(cluster.job(role(STAY, resources=part), queue=guest)) == "Kept"


@shows(QUEUE, "spec.weight")
def test_what_is_nobodys_goes_by_weight(cluster: Standing) -> None:
    owner = name_of(cluster, nominal={"cpu": "6"})
    held = cluster.job(role(STAY, replicas=3, resources={"cpu": "2"}), queue=owner)
    cluster.running(held)
    elastic = role(STAY, replicas=6, minReplicas=1, resources={"cpu": "1"})
    jobs = [cluster.job(elastic, queue=name_of(cluster, weight=weight)) for weight in (2.0, 1.0)]
    for job in jobs:
        cluster.waiting(job)
    cluster.client.cancel("default", held.metadata.name)
    for job, count in zip(jobs, (4, 2), strict=True):
        cluster.until(job, lambda j, n=count: _running(j) == n, f"{count} tasks run")


@shows(QUEUE, "spec.priority")
def test_of_those_that_borrow_the_higher_comes_first(cluster: Standing) -> None:
    held = cluster.job(role(STAY, **BOTH), queue=name_of(cluster, nominal={"gpu": 2}))
    cluster.running(held)
    later = cluster.job(role(STAY, **BOTH), queue=name_of(cluster, priority=0))
    cluster.waiting(later)
    sooner = cluster.job(role(STAY, **BOTH), queue=name_of(cluster, priority=1))
    cluster.waiting(sooner)
    cluster.client.cancel("default", held.metadata.name)
    cluster.running(sooner)
    assert cluster.look(later).status.phase == "Pending"


@shows(QUEUE, "spec.fenced")
def test_who_is_inside_a_fence_takes_nothing_from_outside(cluster: Standing) -> None:
    fenced = name_of(cluster, nominal={"gpu": 2}, fenced=True)
    lent = cluster.job(role(STAY, **BOTH), queue=name_of(cluster))
    cluster.running(lent)
    own = cluster.job(role(STAY, **ONE), queue=fenced)
    cluster.waiting(own)
    cluster.client.cancel("default", lent.metadata.name)
    cluster.running(own)
    assert cluster.look(lent).status.phase == "Cancelled"


@shows(
    QUEUE,
    "spec.userLimit.cpu",
    "spec.userLimit.memory",
    "spec.userLimit.gpu",
    "spec.userLimit.jobs",
)
@pytest.mark.parametrize(
    ("resource", "most", "part"), [*((r, p[r], p) for r, _, p in RESOURCES), ("jobs", 1, {"cpu": "1"})]
)
def test_no_user_has_more_than_its_part(
    cluster: Standing, resource: str, most: object, part: dict[str, Any]
) -> None:
    queue = name_of(cluster, userLimit={resource: most})
    cluster.running(cluster.job(role(STAY, resources=part), queue=queue, user="ann"))
    second = cluster.job(role(STAY, resources=part), queue=queue, user="ann")
    assert cluster.waiting(second) == "UserCap"
    cluster.running(cluster.job(role(STAY, resources=part), queue=queue, user="bob"))


@shows(JOB, "spec.user")
def test_a_job_without_a_user_is_its_submitters(cluster: Standing) -> None:
    queue = name_of(cluster, userLimit={"jobs": 1})
    first = cluster.job(role(STAY), queue=queue)
    cluster.running(first)
    mine = cluster.job(role(STAY), queue=queue, user=first.metadata.submitter)
    assert cluster.waiting(mine) == "UserCap"
    cluster.running(cluster.job(role(STAY), queue=queue, user="somebody else"))


@shows(QUEUE, "spec.minRuntime")
def test_who_has_just_begun_is_left_alone(cluster: Standing) -> None:
    owner = name_of(cluster, nominal={"gpu": 2})
    lent = cluster.job(role(STAY, **BOTH), queue=name_of(cluster, minRuntime="4s"))
    cluster.running(lent)
    own = cluster.job(role(STAY, **ONE), queue=owner)
    cluster.running(own)
    ended_by(cluster, lent, "Preempted")
    began, given_way = cluster.look(lent).status.started, cluster.look(own).status.started
    assert given_way - began >= 3.9


@shows(QUEUE, "spec.budgets[].name", "spec.budgets[].resource", "spec.budgets[].hours")
@pytest.mark.parametrize("resource", ["cpu", "memory", "gpu", "node"])
def test_nothing_starts_once_a_budget_is_used_up(cluster: Standing, resource: str) -> None:
    budget = {"name": "grant", "resource": resource, "hours": 1.0 / 3600}
    queue = name_of(cluster, budgets=[budget])
    asks = {"resources": {"cpu": "1", "memory": "1Gi", "gpu": 1}}
    first = cluster.job(role("exec sleep 2", **asks), queue=queue)
    cluster.finished(first)
    spent = cluster.until_queue(queue, lambda q: q.status.spent.get("grant", 0.0) >= budget["hours"])
    assert spent.status.spent["grant"] <= 4.0 / 3600
    second = cluster.job(role(STAY, **asks), queue=queue)
    assert cluster.waiting(second) == "BudgetExhausted"
    assert cluster.look(second).status.scheduling.evidence["budget"] == "grant"


@shows(JOB, "spec.preemptible")
def test_nothing_is_taken_from_a_job_that_says_so(cluster: Standing) -> None:
    queue = name_of(cluster, nominal={"gpu": 2, "cpu": "6"})
    firm = cluster.job(role(STAY, **BOTH), queue=queue, preemptible=False, priority=-5)
    cluster.running(firm)
    urgent = cluster.job(role(STAY, **ONE), queue=queue, priority=5)
    cluster.waiting(urgent)
    cluster.edit(firm, preemptible=True)
    cluster.running(urgent)
    ended_by(cluster, firm, "Preempted")


def _running(job: Job) -> int:
    return sum(role.running for role in job.status.roles)
