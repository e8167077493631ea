"""What queues own, lend and borrow, each field shown on simulated jobs that run in two of them.

Real processes under the same rules: test_two_teams.py, test_fields_queue.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB, QUEUE
from tests.scenarios.fields import shows
from tests.scenarios.simulated import Simulated, role

pytestmark = pytest.mark.slow

STAY = "sleep 3600"
BOTH = {"resources": {"cpu": "100m", "gpu": 2}}
"""All the devices that there are."""
ONE = {"resources": {"cpu": "100m", "gpu": 1}}
RESOURCES = [
    ("cpu", "6", {"cpu": "2"}),
    ("memory", "3Gi", {"cpu": "100m", "memory": "1000Mi"}),
    ("gpu", 2, {"cpu": "100m", "gpu": 1}),
]
"""All that there is of each, and what a third (of devices, a half) of it is to a task."""


def name_of(simulated: Simulated, **spec: Any) -> str:
    return simulated.queue(**spec).metadata.name


def ended_by(simulated: Simulated, job: Job, reason: str) -> None:
    """Wait until all of it has given way."""
    simulated.until(job, lambda j: j.status.allocation.reason == reason, f"it is {reason}")


@shows(QUEUE, "spec.parent")
def test_what_is_said_of_a_queue_is_said_of_all_below_it(simulated: Simulated) -> None:
    above = name_of(simulated, quota={"cpu": "1"})
    one, other = name_of(simulated, parent=above), name_of(simulated, parent=above)
    first = simulated.job(role(STAY, resources={"cpu": "600m"}), queue=one)
    simulated.running(first)
    second = simulated.job(role(STAY, resources={"cpu": "600m"}), queue=other)
    assert simulated.waiting(second) == "Limit"
    assert simulated.look(second).status.scheduling.evidence["queue"] == above
    simulated.cancel(first)
    simulated.running(second)


@shows(QUEUE, "spec.nominal.cpu", "spec.nominal.memory", "spec.nominal.gpu")
@pytest.mark.parametrize(("resource", "all_of_it", "part"), RESOURCES)
def test_what_is_a_queues_own_comes_back(
    simulated: Simulated, resource: str, all_of_it: object, part: dict[str, Any]
) -> None:
    owner, guest = name_of(simulated, nominal={resource: all_of_it}), name_of(simulated)
    count = 2 if resource == "gpu" else 3
    lent = simulated.job(role(STAY, replicas=count, resources=part), queue=guest)
    simulated.running(lent)
    own = simulated.job(role(STAY, resources=part), queue=owner)
    simulated.running(own)
    ended_by(simulated, lent, "Preempted")


@shows(QUEUE, "spec.guaranteed.cpu", "spec.guaranteed.memory", "spec.guaranteed.gpu")
@pytest.mark.parametrize(("resource", "all_of_it", "part"), RESOURCES)
def test_what_is_guaranteed_is_never_lent(
    simulated: Simulated, resource: str, all_of_it: object, part: dict[str, Any]
) -> None:
    amounts = {resource: all_of_it}
    owner = name_of(simulated, nominal=amounts, guaranteed=amounts)
    other = simulated.job(role(STAY, resources=part), queue=name_of(simulated))
    assert simulated.waiting(other) in ("Kept", "OverLimit")
    simulated.running(simulated.job(role(STAY, resources=part), queue=owner))


@shows(QUEUE, "spec.borrowing.cpu", "spec.borrowing.memory", "spec.borrowing.gpu")
@pytest.mark.parametrize(("resource", "all_of_it", "part"), RESOURCES)
def test_a_queue_borrows_no_more_than_it_may(
    simulated: Simulated, resource: str, all_of_it: object, part: dict[str, Any]
) -> None:
    queue = name_of(simulated, borrowing={resource: part[resource]})
    simulated.running(simulated.job(role(STAY, resources=part), queue=queue))
    second = simulated.job(role(STAY, resources=part), queue=queue)
    assert simulated.waiting(second) == "Borrowing"
    assert simulated.look(second).status.scheduling.evidence["resource"] == resource


@shows(QUEUE, "spec.lending.cpu", "spec.lending.memory", "spec.lending.gpu")
@pytest.mark.parametrize(("resource", "all_of_it", "part"), RESOURCES)
def test_a_queue_lends_no_more_than_it_says(
    simulated: Simulated, resource: str, all_of_it: object, part: dict[str, Any]
) -> None:
    name_of(simulated, nominal={resource: all_of_it}, lending={resource: part[resource]})
    guest = name_of(simulated)
    simulated.running(simulated.job(role(STAY, resources=part), queue=guest))
    assert simulated.waiting(simulated.job(role(STAY, resources=part), queue=guest)) == "Kept"


@shows(QUEUE, "spec.weight")
def test_what_is_nobodys_goes_by_weight(simulated: Simulated) -> None:
    owner = name_of(simulated, nominal={"cpu": "6"})
    held = simulated.job(role(STAY, replicas=3, resources={"cpu": "2"}), queue=owner)
    simulated.running(held)
    elastic = role(STAY, replicas=6, minReplicas=1, resources={"cpu": "1"})
    jobs = [simulated.job(elastic, queue=name_of(simulated, weight=weight)) for weight in (2.0, 1.0)]
    for job in jobs:
        simulated.waiting(job)
    simulated.cancel(held)
    for job, count in zip(jobs, (4, 2), strict=True):
        simulated.until(job, lambda j, n=count: _running(j) == n, f"{count} tasks run")


@shows(QUEUE, "spec.priority")
def test_of_those_that_borrow_the_higher_comes_first(simulated: Simulated) -> None:
    held = simulated.job(role(STAY, **BOTH), queue=name_of(simulated, nominal={"gpu": 2}))
    simulated.running(held)
    later = simulated.job(role(STAY, **BOTH), queue=name_of(simulated, priority=0))
    simulated.waiting(later)
    sooner = simulated.job(role(STAY, **BOTH), queue=name_of(simulated, priority=1))
    simulated.waiting(sooner)
    simulated.cancel(held)
    simulated.running(sooner)
    assert simulated.look(later).status.phase == "Pending"


@shows(QUEUE, "spec.fenced")
def test_who_is_inside_a_fence_takes_nothing_from_outside(simulated: Simulated) -> None:
    fenced = name_of(simulated, nominal={"gpu": 2}, fenced=True)
    lent = simulated.job(role(STAY, **BOTH), queue=name_of(simulated))
    simulated.running(lent)
    own = simulated.job(role(STAY, **ONE), queue=fenced)
    simulated.waiting(own)
    simulated.cancel(lent)
    simulated.running(own)
    assert simulated.look(lent).status.phase == "Cancelled"


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
    simulated: Simulated, resource: str, most: object, part: dict[str, Any]
) -> None:
    queue = name_of(simulated, userLimit={resource: most})
    simulated.running(simulated.job(role(STAY, resources=part), queue=queue, user="ann"))
    second = simulated.job(role(STAY, resources=part), queue=queue, user="ann")
    assert simulated.waiting(second) == "UserCap"
    simulated.running(simulated.job(role(STAY, resources=part), queue=queue, user="bob"))


@shows(JOB, "spec.user")
def test_a_job_without_a_user_is_its_submitters(simulated: Simulated) -> None:
    queue = name_of(simulated, userLimit={"jobs": 1})
    first = simulated.job(role(STAY), queue=queue)
    simulated.running(first)
    mine = simulated.job(role(STAY), queue=queue, user=first.metadata.submitter)
    assert simulated.waiting(mine) == "UserCap"
    simulated.running(simulated.job(role(STAY), queue=queue, user="somebody else"))


@shows(QUEUE, "spec.minRuntime")
def test_who_has_just_begun_is_left_alone(simulated: Simulated) -> None:
    owner = name_of(simulated, nominal={"gpu": 2})
    lent = simulated.job(role(STAY, **BOTH), queue=name_of(simulated, minRuntime="4s"))
    simulated.running(lent)
    own = simulated.job(role(STAY, **ONE), queue=owner)
    simulated.running(own)
    ended_by(simulated, lent, "Preempted")
    began, given_way = simulated.look(lent).status.started, simulated.look(own).status.started
    assert given_way - began >= 3.9


@shows(QUEUE, "spec.budgets[].name", "spec.budgets[].resource", "spec.budgets[].hours")
@pytest.mark.parametrize("resource", ["cpu", "memory", "gpu", "node"])
def test_nothing_starts_once_a_budget_is_used_up(simulated: Simulated, resource: str) -> None:
    budget = {"name": "grant", "resource": resource, "hours": 1.0 / 3600}
    queue = name_of(simulated, budgets=[budget])
    asks = {"resources": {"cpu": "1", "memory": "1Gi", "gpu": 1}}
    first = simulated.job(role("sleep 2", **asks), queue=queue)
    simulated.finished(first)
    spent = simulated.until_queue(queue, lambda q: q.status.spent.get("grant", 0.0) >= budget["hours"])
    assert spent.status.spent["grant"] <= 4.0 / 3600
    second = simulated.job(role(STAY, **asks), queue=queue)
    assert simulated.waiting(second) == "BudgetExhausted"
    assert simulated.look(second).status.scheduling.evidence["budget"] == "grant"


@shows(JOB, "spec.preemptible")
def test_nothing_is_taken_from_a_job_that_says_so(simulated: Simulated) -> None:
    queue = name_of(simulated, nominal={"gpu": 2, "cpu": "6"})
    firm = simulated.job(role(STAY, **BOTH), queue=queue, preemptible=False, priority=-5)
    simulated.running(firm)
    urgent = simulated.job(role(STAY, **ONE), queue=queue, priority=5)
    simulated.waiting(urgent)
    simulated.edit(firm, preemptible=True)
    simulated.running(urgent)
    ended_by(simulated, firm, "Preempted")


def _running(job: Job) -> int:
    return sum(role.running for role in job.status.roles)
