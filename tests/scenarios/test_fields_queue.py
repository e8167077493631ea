"""The fields of a queue, each shown on jobs that run in it, or wait."""

import pytest

from shoal.objects.errors import Forbidden
from shoal.objects.kinds import JOB, QUEUE
from tests.scenarios.fields import shows
from tests.scenarios.standing import Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

STAY = "exec sleep 60"


@shows(QUEUE, "spec.quota.cpu", "spec.quota.memory", "spec.quota.gpu", "spec.quota.jobs")
@pytest.mark.parametrize(
    ("quota", "one", "resource"),
    [
        ({"cpu": "500m"}, {"cpu": "300m"}, "cpu"),
        ({"memory": "100Mi"}, {"cpu": "100m", "memory": "60Mi"}, "memory"),
        ({"gpu": 1}, {"cpu": "100m", "gpu": 1}, "gpu"),
        ({"jobs": 1}, {"cpu": "100m"}, "jobs"),
    ],
)
def test_jobs_beyond_the_quota_wait_until_others_end(
    cluster: Standing, quota: dict[str, object], one: dict[str, object], resource: str
) -> None:
    queue = cluster.queue(quota=quota).metadata.name
    first = cluster.job(role(STAY, resources=one), queue=queue)
    cluster.running(first)
    second = cluster.job(role(STAY, resources=one), queue=queue)
    assert cluster.waiting(second) == "Limit"
    assert cluster.look(second).status.scheduling.evidence["resource"] == resource
    elsewhere = cluster.job(role("true", resources=one))
    assert cluster.finished(elsewhere).status.phase == "Succeeded", "it is the queue's, not the nodes'"
    cluster.client.cancel("default", first.metadata.name)
    cluster.running(second)


@shows(QUEUE, "spec.namespaces")
def test_a_queue_takes_jobs_of_its_namespaces_alone(cluster: Standing) -> None:
    queue = cluster.queue(namespaces=["team-a", "team-b"]).metadata.name
    with pytest.raises(Forbidden, match="is not for namespace default"):
        cluster.job(role("true"), queue=queue)
    job = cluster.job(role("true"), queue=queue, metadata={"namespace": "team-b"})
    assert cluster.finished(job).status.phase == "Succeeded"


@shows(QUEUE, "spec.highestPriority")
def test_a_namespace_has_a_highest_priority(cluster: Standing) -> None:
    highest = {"team-a": "production", "*": 5}
    queue = cluster.queue(highestPriority=highest).metadata.name
    with pytest.raises(Forbidden, match="have at most priority 5"):
        cluster.job(role("true"), queue=queue, priority=6)
    in_team = {"queue": queue, "metadata": {"namespace": "team-a"}}
    with pytest.raises(Forbidden, match="have at most priority production"):
        cluster.job(role("true"), priority=1001, **in_team)
    allowed = [
        cluster.job(role("true"), queue=queue, priority=5),
        cluster.job(role("true"), priority="production", **in_team),
    ]
    for job in allowed:
        assert cluster.finished(job).status.phase == "Succeeded"
    running = cluster.job(role(STAY), queue=queue)
    cluster.running(running)
    with pytest.raises(Forbidden):
        cluster.edit(running, priority=6)


@shows(JOB, "spec.queue")
def test_a_queue_shows_what_its_jobs_hold(cluster: Standing) -> None:
    name = cluster.queue(quota={"cpu": "1"}).metadata.name
    ask = {"cpu": "600m", "memory": "32Mi"}
    for _ in "ab":
        cluster.job(role(STAY, resources=ask), queue=name)
    queue = cluster.until_queue(name, lambda q: (q.status.running, q.status.pending) == (1, 1))
    assert (queue.status.usage.cpu, queue.status.usage.memory) == (600, 32 << 20)
