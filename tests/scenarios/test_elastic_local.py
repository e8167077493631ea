"""Elastic jobs on real processes: slots come and go, tasks are killed, and the coordinator is real.

The workers are shell scripts that note what happens to them; they never join a view. What training makes
of it all is tested with the runtime itself.
"""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB, MEMBERSHIP
from shoal.objects.membership import Membership
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.ranges import IndexSet
from shoal.store.base import SYSTEM
from shoal.store.sql import open_sql
from shoal.testing.local import nodes, wait_until
from tests.scenarios.standing import PATIENCE_SECONDS, Standing, python, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

NOTE = 'echo "$1 $SHOAL_INDEX $SHOAL_INCARNATION" >> $SHOAL_OUTPUT/notes'
STAY = f"note() {{ {NOTE}; }}; trap 'note left; exit 0' TERM; note came; while :; do sleep 0.05; done"
"""Leaves when it is told to, and says so; exit code 0, as a worker that lost nothing."""

ASK = """
import http.client, json, os, socket
def ask(method, path, body=None):
    connection = http.client.HTTPConnection("shoal", timeout=20)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(20)
    connection.sock.connect(os.environ["SHOAL_API"].removeprefix("unix://"))
    token = open(os.environ["SHOAL_TOKEN_FILE"]).read().strip()
    text = None if body is None else json.dumps(body)
    connection.request(method, "/api/v1/elastic" + path, text, {"Authorization": "Bearer " + token})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """One node with room for four workers of half a core, and their coordinator."""
    declared = nodes(one={"cpu": CpuMillis(2100), "memory": Bytes(2 << 30)})
    with Standing(tmp_path_factory.mktemp("elastic") / "home", declared) as standing:
        yield standing


@pytest.fixture
def cluster(home: Standing) -> Iterator[Standing]:
    home.begin()
    yield home
    home.clear()


def workers(script: str = STAY, **fields: Any) -> dict[str, Any]:
    half = {"resources": {"cpu": "500m"}, "replicas": 4, "minReplicas": 1}
    return role(script, **{**half, **fields})


def elastic(cluster: Standing, script: str = STAY, **spec: Any) -> Job:
    sizes = {name: spec.pop(name) for name in ("replicas", "minReplicas") if name in spec}
    spec = {"priority": "experiment", "restart": {"limit": 3, "backoff": "100ms"}, **spec}
    return cluster.job(workers(script, **sizes), runtime="elastic", **spec)


def running(cluster: Standing, job: Job) -> Counter[str]:
    """Role to how many of its tasks run."""
    return Counter(task.role for task in cluster.tasks(job) if task.phase == "Running")


def until_running(cluster: Standing, job: Job, count: int) -> None:
    wanted = {"worker": count, "coordinator": 1}
    wait_until(
        lambda: running(cluster, job) == wanted, PATIENCE_SECONDS, f"{count} workers run beside one"
    )


def until_counted(cluster: Standing, job: Job, count: int) -> Job:
    """Wait until the job's status says so, too."""

    def counted(there: Job) -> bool:
        return {each.name: each.running for each in there.status.roles}.get("worker", 0) == count

    return cluster.until(job, counted, f"{count} workers in its status")


def kill(cluster: Standing, job: Job, name: str, index: int) -> None:
    os.kill(cluster.processes(job, name, index).command_pid, signal.SIGKILL)


def test_a_production_job_takes_two_of_four_and_gives_them_back(cluster: Standing) -> None:
    job = elastic(cluster, replicas=2)
    until_running(cluster, job, 2)
    assert cluster.cli("scale", f"job/{job.metadata.name}", "--max", "4").code == 0
    until_running(cluster, job, 4)

    for index in range(4):
        cluster.until_noted(job, f"came {index} 1")  # from then on it minds its notice
    half = {"resources": {"cpu": "500m"}, "replicas": 2}
    production = cluster.job(role("exec sleep 600", **half), priority="production")
    cluster.running(production)
    until_running(cluster, job, 2)
    notes = cluster.notes(job)
    assert sorted(line for line in notes if line.startswith("left")) == ["left 2 1", "left 3 1"]
    told = cluster.cli("explain", f"job/{job.metadata.name}").out.decode()
    assert f"for default/{production.metadata.name}; " in told

    cluster.client.cancel("default", production.metadata.name)
    until_running(cluster, job, 4)
    cluster.until_noted(job, "came 2 2")
    notes = cluster.until_noted(job, "came 3 2")
    assert [line for line in notes if line in ("came 0 2", "came 1 2")] == [], "they never noticed"
    status = until_counted(cluster, job, 4).status
    assert (status.failures, status.infrastructure_failures, status.attempt) == (0, 0, 1)
    events = cluster.client.events(namespace="default", kind=JOB, name=job.metadata.name)
    reasons = {entry.reason for entry in events}
    assert {"Started", "Preempted"} <= reasons


def test_a_killed_worker_starts_again_alone(cluster: Standing) -> None:
    job = elastic(cluster, replicas=3)
    until_running(cluster, job, 3)
    kill(cluster, job, "worker", 1)
    cluster.until_noted(job, "came 1 2")
    until_running(cluster, job, 3)
    status = until_counted(cluster, job, 3).status
    assert (status.failures, status.infrastructure_failures, status.attempt) == (1, 0, 1)
    wait_until(lambda: len(cluster.notes(job)) >= 4, PATIENCE_SECONDS, "three starts and one more")
    assert len(cluster.notes(job)) == 4, "nobody else started again"


def test_a_killed_coordinator_starts_again_and_knows_what_it_knew(cluster: Standing) -> None:
    job = elastic(cluster, replicas=2, restart={"limit": 0})
    until_running(cluster, job, 2)
    wait_until(lambda: listens(cluster, job), PATIENCE_SECONDS, "the coordinator says where it is")
    before = record(cluster, job)
    kill(cluster, job, "coordinator", 0)
    cluster.until(job, lambda j: j.status.infrastructure_failures == 1, "its death is counted")
    until_running(cluster, job, 2)
    wait_until(lambda: listens(cluster, job), PATIENCE_SECONDS, "the next one says where it is")
    assert record(cluster, job)["key"] == before["key"], "who may join may join again"
    status = cluster.look(job).status
    assert (status.phase, status.failures, status.attempt) == ("Running", 0, 1)
    wait_until(lambda: len(cluster.notes(job)) >= 2, PATIENCE_SECONDS, "both have come")
    assert sorted(cluster.notes(job)) == ["came 0 1", "came 1 1"], "no worker noticed"


def record(cluster: Standing, job: Job) -> dict[str, Any]:
    """What the coordinator keeps with the platform."""
    store = open_sql(cluster.home.store_db)
    try:
        found = store.list(MEMBERSHIP, actor=SYSTEM).records
        mine = [each.object for each in found if each.object.metadata.name == job.metadata.name]
        kept: Membership | None = mine[0] if mine else None
        return msgspec.json.decode(kept.spec.record) if kept is not None else {}
    finally:
        store.close()


def listens(cluster: Standing, job: Job) -> bool:
    """Whether somebody answers where the record says that the coordinator is."""
    address = record(cluster, job).get("address", "")
    if not address:
        return False
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1.0).close()
    except ConnectionRefusedError:
        return False
    return True


def test_both_killed_together(cluster: Standing) -> None:
    """training-H1, the double fault, the platform's side: both are there again, each on its account."""
    job = elastic(cluster, replicas=2)
    until_running(cluster, job, 2)
    kill(cluster, job, "coordinator", 0)
    kill(cluster, job, "worker", 0)
    cluster.until_noted(job, "came 0 2")
    until_running(cluster, job, 2)
    status = until_counted(cluster, job, 2).status
    assert (status.failures, status.infrastructure_failures, status.attempt) == (1, 1, 1)


def test_scaled_while_it_runs(cluster: Standing) -> None:
    job = elastic(cluster)
    until_running(cluster, job, 4)
    cluster.until_noted(job, "came 0 1")
    name = f"job/{job.metadata.name}"
    assert cluster.cli("scale", name, "--max", "1").code == 0
    until_running(cluster, job, 1)
    assert "left 0 1" not in cluster.notes(job)
    assert cluster.cli("scale", name, "--min", "2", "--max", "3").code == 0
    until_running(cluster, job, 3)
    slots = cluster.look(job).status.allocation.slots
    held = {s.role: IndexSet.parse(s.indices).text for s in slots}
    assert held == {"coordinator": "0", "worker": "0-2"}
    assert cluster.cli("scale", name, "--role", "coordinator", "--replicas", "2").code == 2


def test_suspended_and_resumed(cluster: Standing) -> None:
    job = elastic(cluster, replicas=2)
    until_running(cluster, job, 2)
    name = f"job/{job.metadata.name}"
    assert cluster.cli("suspend", name).code == 0
    cluster.until(job, lambda j: j.status.phase == "Suspended", "Suspended")
    assert cluster.cli("resume", name).code == 0
    until_running(cluster, job, 2)
    status = cluster.look(job).status
    assert (status.attempt, status.failures) == (2, 0)


def test_it_ends_when_its_workers_do(cluster: Standing) -> None:
    job = elastic(cluster, f"{NOTE}; sleep 0.5", replicas=2)
    done = cluster.finished(job)
    assert (done.status.phase, done.status.exit_code) == ("Succeeded", 0)
    wait_until(lambda: not cluster.tasks(job), PATIENCE_SECONDS, "the coordinator's end")


def test_all_workers_that_fail_end_it(cluster: Standing) -> None:
    job = elastic(cluster, "exit 9", replicas=2, restart={"limit": 1, "backoff": "50ms"})
    done = cluster.finished(job)
    assert (done.status.phase, done.status.reason, done.status.exit_code) == (
        "Failed", "RestartLimit", 9,
    )  # fmt: skip
    assert done.status.infrastructure_failures == 0
    wait_until(lambda: not cluster.tasks(job), PATIENCE_SECONDS, "the coordinator's end")


def test_a_task_asks_with_its_own_token(cluster: Standing) -> None:
    """From inside its isolation, over the socket that it sees there; and its report is described."""
    script = f"""{ASK}
code, said = ask("GET", "")
assert code == 200 and (said["minimum"], said["maximum"]) == (1, 2), said
report = {{"world": 2, "step": 7, "goodput": 0.5, "stepSeconds": 0.25, "state": "running",
          "recoveries": [{{"epoch": 2, "seconds": 0.125, "how": "rerun", "world": 2}}]}}
assert ask("POST", "/report", report) == (200, {{}})
open(os.environ["SHOAL_OUTPUT"] + "/notes", "a").write("asked\\n")
import signal
signal.pause()
"""
    job = cluster.job(workers("", replicas=2, command=python(script)), runtime="elastic")
    cluster.until_noted(job, "asked", 2)
    shown = cluster.cli("describe", f"job/{job.metadata.name}").out.decode()
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "goodput: 50.0%" in lines
    assert any(line.endswith("2 rerun 0.125s 2 0") for line in lines)
    said = cluster.look(job).status.elastic
    assert said is not None
    assert said.recoveries == 1


def test_shoal_run_makes_it_elastic(cluster: Standing) -> None:
    script = 'echo "hello from $SHOAL_INDEX of $SHOAL_WORLD_SIZE"; sleep 0.3'
    ran = cluster.cli(
        "run",
        "--min",
        "1",
        "--max",
        "2",
        "--cpu",
        "500m",
        "--name",
        "elastic-run",
        "--",
        "sh",
        "-c",
        script,
    )
    job = cluster.adopt(JOB, "elastic-run")
    assert ran.code == 0, ran.err
    assert job.spec.runtime == "elastic"
    assert [each.name for each in job.spec.roles] == ["worker", "coordinator"]
    lines = ran.out.decode().splitlines()
    assert "[worker 0] hello from 0 of 2" in lines
    assert "[worker 1] hello from 1 of 2" in lines
