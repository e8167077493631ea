"""The fields of a queue, each shown on jobs that run in it, or wait: what a decision alone shows on
simulated jobs."""

import pytest

from shoal.objects.errors import Forbidden
from shoal.objects.kinds import JOB, QUEUE
from tests.scenarios import standing
from tests.scenarios.fields import shows
from tests.scenarios.simulated import Simulated, role
from tests.scenarios.standing import Standing

pytestmark = pytest.mark.slow

STAY = "sleep 3600"


@shows(QUEUE, "spec.quota.cpu")
@pytest.mark.process
def test_jobs_beyond_the_quota_wait_until_others_end(cluster: Standing) -> None:
    one = {"resources": {"cpu": "300m"}}
    queue = cluster.queue(quota={"cpu": "500m"}).metadata.name
    first = cluster.job(standing.role("exec sleep 60", **one), queue=queue)
    cluster.running(first)
    second = cluster.job(standing.role("exec sleep 60", **one), queue=queue)
    assert cluster.waiting(second) == "Limit"
    assert cluster.look(second).status.scheduling.evidence["resource"] == "cpu"
    elsewhere = cluster.job(standing.role("true", **one))
    assert cluster.finished(elsewhere).status.phase == "Succeeded", "it is the queue's, not the nodes'"
    cluster.client.cancel("default", first.metadata.name)
    cluster.running(second)


@shows(QUEUE, "spec.quota.memory", "spec.quota.gpu", "spec.quota.jobs")
@pytest.mark.parametrize(
    ("quota", "one", "resource"),
    [
        ({"memory": "100Mi"}, {"cpu": "100m", "memory": "60Mi"}, "memory"),
        ({"gpu": 1}, {"cpu": "100m", "gpu": 1}, "gpu"),
        ({"jobs": 1}, {"cpu": "100m"}, "jobs"),
    ],
)
def test_a_quota_is_of_each_resource_and_of_jobs(
    simulated: Simulated, quota: dict[str, object], one: dict[str, object], resource: str
) -> None:
    queue = simulated.queue(quota=quota).metadata.name
    first = simulated.job(role(STAY, resources=one), queue=queue)
    simulated.running(first)
    second = simulated.job(role(STAY, resources=one), queue=queue)
    assert simulated.waiting(second) == "Limit"
    assert simulated.look(second).status.scheduling.evidence["resource"] == resource
    simulated.finished(simulated.job(role(resources=one)))
    simulated.cancel(first)
    simulated.running(second)


@shows(QUEUE, "spec.namespaces")
def test_a_queue_takes_jobs_of_its_namespaces_alone(simulated: Simulated) -> None:
    queue = simulated.queue(namespaces=["team-a", "team-b"]).metadata.name
    with pytest.raises(Forbidden, match="is not for namespace default"):
        simulated.job(role(), queue=queue)
    job = simulated.job(role(), queue=queue, metadata={"namespace": "team-b"})
    assert simulated.finished(job).status.phase == "Succeeded"


@shows(QUEUE, "spec.highestPriority")
def test_a_namespace_has_a_highest_priority(simulated: Simulated) -> None:
    highest = {"team-a": "production", "*": 5}
    queue = simulated.queue(highestPriority=highest).metadata.name
    with pytest.raises(Forbidden, match="have at most priority 5"):
        simulated.job(role(), queue=queue, priority=6)
    in_team = {"queue": queue, "metadata": {"namespace": "team-a"}}
    with pytest.raises(Forbidden, match="have at most priority production"):
        simulated.job(role(), priority=1001, **in_team)
    allowed = [
        simulated.job(role(), queue=queue, priority=5),
        simulated.job(role(), priority="production", **in_team),
    ]
    for job in allowed:
        assert simulated.finished(job).status.phase == "Succeeded"
    running = simulated.job(role(STAY), queue=queue)
    simulated.running(running)
    with pytest.raises(Forbidden):
        simulated.edit(running, priority=6)


@shows(JOB, "spec.queue")
@pytest.mark.process
def test_a_queue_shows_what_its_jobs_hold(cluster: Standing) -> None:
    name = cluster.queue(quota={"cpu": "1"}).metadata.name
    ask = {"cpu": "600m", "memory": "32Mi"}
    for _ in "ab":
        cluster.job(standing.role("exec sleep 60", resources=ask), queue=name)
    queue = cluster.until_queue(name, lambda q: (q.status.running, q.status.pending) == (1, 1))
    assert (queue.status.usage.cpu, queue.status.usage.memory) == (600, 32 << 20)
