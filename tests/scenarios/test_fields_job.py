"""The fields of a job beside its roles, its restarts and its limits."""

import functools
import json
import socket
import time

import pytest

from shoal.cluster.local.isolation import namespaces
from shoal.objects.errors import Invalid
from shoal.objects.kinds import JOB
from shoal.testing.local import wait_until
from tests.scenarios.fields import shows
from tests.scenarios.simulated import Simulated
from tests.scenarios.simulated import role as simulated_role
from tests.scenarios.standing import Standing, python, role
from tests.support.require import require

pytestmark = pytest.mark.slow

NOTE = 'echo "$SHOAL_ROLE $SHOAL_INDEX" >> $SHOAL_OUTPUT/notes'
STAY = f"{NOTE}; exec sleep 60"
SLEEPS = "sleep 3600"
"""Of a simulated task."""


soaked = functools.partial(pytest.param, marks=pytest.mark.soak)


@shows(JOB, "spec.runtime")
@pytest.mark.parametrize(
    ("runtime", "variables"),
    [
        ("plain", {"SHOAL_RANK": "1", "SHOAL_WORLD_SIZE": "2", "RANK": ""}),
        ("torchrun", {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "*"}),
        ("mpi", {"K_MPI_JOB_ROLE": "worker"}),
        # each contract by itself: tests/rendezvous; here they go the same way as those above
        soaked("elastic", {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "*"}),
        soaked("tensorflow", {"TF_CONFIG": "*", "RANK": ""}),
        soaked("jax", {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}),
        soaked("xgboost", {"RANK": "1", "WORLD_SIZE": "2"}),
        soaked("paddle", {"PADDLE_TRAINER_ID": "*"}),
    ],
)
@pytest.mark.process
def test_the_runtime_says_how_tasks_find_their_peers(
    cluster: Standing, runtime: str, variables: dict[str, str]
) -> None:
    script = "import os, json; print(json.dumps(dict(os.environ)))"
    roles = [role(replicas=2, command=python(script))]
    if runtime == "mpi":
        roles.insert(0, role("exec sleep 60", name="launcher"))
    job = cluster.job(*roles, runtime=runtime, success={"role": "worker"})
    assert cluster.finished(job).status.phase == "Succeeded", cluster.log(job)
    told = json.loads(cluster.log(job, role="worker", index=1))
    for variable, value in variables.items():
        found = told.get(variable, "")
        assert found if value == "*" else found == value, (variable, found)


@shows(JOB, "spec.queue")
@pytest.mark.process
def test_the_queue_is_where_the_job_waits_and_counts(cluster: Standing) -> None:
    full = cluster.queue(quota={"jobs": 0})
    name = full.metadata.name
    waits = cluster.job(role(STAY), queue=name)
    runs = cluster.job(role(STAY))
    assert cluster.waiting(waits) == "OverLimit"
    cluster.running(runs)
    cluster.until_queue(name, lambda queue: (queue.status.pending, queue.status.running) == (1, 0))
    cluster.edit(waits, queue="default")
    cluster.running(waits)


@shows(JOB, "spec.priority")
def test_higher_priority_goes_first(simulated: Simulated) -> None:
    whole = {"resources": {"cpu": "4"}}
    blocker = simulated.job(simulated_role(SLEEPS, **whole), priority=2000)
    simulated.running(blocker)
    script = "sleep 0.2"
    low = simulated.job(simulated_role(script, **whole), priority="experiment")
    middle = simulated.job(simulated_role(script, **whole))
    high = simulated.job(simulated_role(script, **whole), priority=17)
    urgent = simulated.job(simulated_role(script, **whole), priority="production")
    for job in (low, middle, high, urgent):
        assert simulated.waiting(job) == "NoRoom"
    simulated.cancel(blocker)
    ended = [simulated.finished(job).status for job in (urgent, high, middle, low)]
    assert [status.phase for status in ended] == ["Succeeded"] * 4
    assert [s.started for s in ended] == sorted(s.started for s in ended)


@shows(JOB, "spec.after[].job", "spec.after[].on")
@pytest.mark.process
def test_a_job_starts_after_those_that_it_waits_for(cluster: Standing) -> None:
    fails = cluster.job(role("sleep 1; exit 3"))
    name = fails.metadata.name
    alarm = cluster.job(role("true"), after=[{"job": name, "on": "failure"}])
    never = cluster.job(role("true"), after=[{"job": name, "on": "success"}])
    cluster.until(alarm, lambda j: j.status.reason == "Dependency")
    assert cluster.finished(alarm).status.phase == "Succeeded"
    assert cluster.look(alarm).status.started >= cluster.look(fails).status.finished
    assert cluster.finished(never).status.reason == "DependencyNeverSatisfied"
    with pytest.raises(Invalid, match=f"no job {name}x in namespace default; did you mean {name}"):
        cluster.job(role("true"), after=[{"job": f"{name}x"}])


@shows(JOB, "spec.gang.min")
def test_so_many_must_fit_before_any_starts(simulated: Simulated) -> None:
    three = simulated_role(SLEEPS, replicas=3, resources={"cpu": "2"})
    two = [simulated_role(SLEEPS, name=name, resources={"cpu": "2"}) for name in "ab"]
    blocker = simulated.job(*two)
    simulated.running(blocker)
    rigid = simulated.job(three, gang={"min": 2})
    assert simulated.waiting(rigid) == "NoRoom"
    content = simulated.job(three, gang={"min": 1})
    simulated.running(content)
    simulated.until(content, lambda j: sum(r.running for r in j.status.roles) == 1)
    assert simulated.look(rigid).status.phase == "Pending"
    simulated.cancel(content)
    simulated.cancel(blocker)
    simulated.until(rigid, lambda j: sum(r.running for r in j.status.roles) >= 2)


@shows(JOB, "spec.array.indices")
@pytest.mark.process
def test_an_array_runs_its_role_once_per_index(cluster: Standing) -> None:
    job = cluster.job(role(f"{NOTE}; test $SHOAL_INDEX != 7 || exit 9"), array={"indices": "0-1,4,7"})
    ended = cluster.finished(job)
    assert sorted(cluster.notes(job)) == ["worker 0", "worker 1", "worker 4", "worker 7"]
    assert ended.status.phase == "Failed", "index 7 has no more restarts"
    assert ended.status.roles[0].succeeded == 3


@shows(JOB, "spec.array.parallelism")
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.process
def test_parallelism_bounds_how_many_run_at_once(cluster: Standing, parallelism: int) -> None:
    other = "until [ $(grep -c begin $SHOAL_OUTPUT/notes) -gt 1 ]; do sleep 0.05; done"
    wait = "sleep 0.1" if parallelism == 1 else other
    script = f"echo begin >> $SHOAL_OUTPUT/notes; {wait}; echo end >> $SHOAL_OUTPUT/notes"
    job = cluster.job(role(script), array={"indices": "0-5", "parallelism": parallelism})
    assert cluster.finished(job).status.phase == "Succeeded"
    at_once = most = 0
    for line in cluster.notes(job):
        at_once += 1 if line == "begin" else -1
        most = max(most, at_once)
    assert 1 <= most <= parallelism
    assert parallelism == 1 or most > 1


@shows(JOB, "spec.limits.nodeHours")
@pytest.mark.process
def test_a_job_fails_once_it_has_used_its_node_hours(cluster: Standing) -> None:
    job = cluster.job(role(STAY, replicas=2), limits={"nodeHours": 1.0 / 3600})
    ended = cluster.finished(job)
    assert (ended.status.phase, ended.status.reason) == ("Failed", "NodeHoursExceeded")
    used = ended.status.node_time
    assert used.node_seconds + used.nodes * (ended.status.finished - used.since) >= 1.0
    alone = cluster.job(role("true"), limits={"nodeHours": 1.0})
    assert cluster.finished(alone).status.phase == "Succeeded"


@shows(JOB, "spec.cleanUp")
@pytest.mark.parametrize("clean_up", ["Running", "All", "None"])
@pytest.mark.process
def test_clean_up_says_what_becomes_of_the_rest(cluster: Standing, clean_up: str) -> None:
    chief = role("until test -e $SHOAL_OUTPUT/go; do sleep 0.02; done", name="chief")
    rest = role(f"{NOTE}; sleep 3; echo by itself >> $SHOAL_OUTPUT/notes", name="rest")
    job = cluster.job(chief, rest, success={"role": "chief"}, cleanUp=clean_up)
    cluster.until_noted(job, "rest 0")
    (cluster.output(job) / "go").touch()
    ended = cluster.finished(job)
    assert ended.status.phase == "Succeeded"
    if clean_up == "None":
        cluster.until_noted(job, "by itself")
    wait_until(lambda: not cluster.tasks(job), what="every task has ended")
    if clean_up == "All":
        wait_until(lambda: not cluster.output(job).exists(), what="the output is deleted")
    else:
        assert ("by itself" in cluster.notes(job)) == (clean_up == "None")


@shows(JOB, "spec.ttlAfterFinished")
@pytest.mark.process
def test_a_finished_job_is_deleted_after_its_time(cluster: Standing) -> None:
    kept = cluster.job(role("true"))
    job = cluster.job(role("true"), ttlAfterFinished="1500ms")
    finished = cluster.finished(job).status.finished
    cluster.until_gone(JOB, "default", job.metadata.name)
    assert time.time() - finished >= 1.5
    assert cluster.finished(kept).status.phase == "Succeeded"


@shows(JOB, "spec.suspend")
@pytest.mark.process
def test_a_suspended_job_runs_nothing_until_it_is_resumed(cluster: Standing) -> None:
    job = cluster.job(role(STAY), suspend=True)
    cluster.until(job, lambda j: j.status.phase == "Suspended")
    assert not cluster.tasks(job)
    cluster.edit(job, suspend=False)
    cluster.until_noted(job, "worker 0")
    cluster.edit(job, suspend=True)
    cluster.until(job, lambda j: j.status.phase == "Suspended" and not j.status.allocation.slots)
    wait_until(lambda: not cluster.tasks(job), what="its task has ended")
    cluster.edit(job, suspend=False)
    cluster.until_noted(job, "worker 0", 2)
    assert cluster.look(job).status.failures == 0


@shows(JOB, "spec.cancelled")
@pytest.mark.process
def test_a_cancelled_job_ends_for_good(cluster: Standing) -> None:
    job = cluster.job(role(STAY), restart={"limit": 9})
    cluster.until_noted(job, "worker 0")
    cluster.edit(job, cancelled=True)
    assert cluster.finished(job).status.phase == "Cancelled"
    wait_until(lambda: not cluster.tasks(job), what="its task has ended")
    with pytest.raises(Invalid, match="cannot be revived"):
        cluster.edit(job, cancelled=False)
    assert cluster.notes(job) == ["worker 0"]


@shows(JOB, "spec.isolation")
@pytest.mark.process
def test_strict_isolation_is_enforced_whole_or_refused(cluster: Standing) -> None:
    reach = """
import socket, sys
with socket.socket() as client:
    print(client.connect_ex(("127.0.0.1", int(sys.argv[1]))) == 0)
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = python(reach, str(server.getsockname()[1]))
        default = cluster.job(role(command=command), isolation="default")
        strict = cluster.job(role(command=command), isolation="strict")
        assert cluster.finished(default).status.phase == "Succeeded"
        assert cluster.log(default) == b"True\n"
        lacking = [name for name in namespaces.STRICT if cluster.isolation(name) != "enforced"]
        if lacking:
            refused = cluster.finished(strict).status
            assert (refused.phase, refused.reason) == ("Failed", "IsolationUnavailable")
            assert all(name in refused.message for name in lacking)
            assert refused.infrastructure_failures == 1, "it is not tried again and again"
            require("strict", f"strict isolation cannot be had here: {', '.join(lacking)}")
        assert cluster.finished(strict).status.phase == "Succeeded"
        assert cluster.log(strict) == b"False\n"
