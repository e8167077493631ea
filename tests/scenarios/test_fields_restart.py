"""What ends a job, what starts its tasks again, and what it may cost: shown on tasks that fail, or that
are said to fail in virtual time."""

import os
import signal
import time

import pytest

from shoal.objects.kinds import JOB
from shoal.testing.local import wait_until
from tests.scenarios.fields import shows
from tests.scenarios.simulated import Simulated
from tests.scenarios.simulated import role as simulated_role
from tests.scenarios.standing import Standing, role

pytestmark = pytest.mark.slow

NOTE = 'echo "$SHOAL_ROLE $SHOAL_INDEX" >> $SHOAL_OUTPUT/notes'
FAST = {"backoff": "50ms"}
SECOND_TIME = "test $SHOAL_INCARNATION -ge 2"


@shows(JOB, "spec.restart.policy")
@pytest.mark.parametrize(
    ("policy", "code", "starts", "phase"),
    [
        ("Never", 1, 1, "Failed"),
        ("OnFailure", 1, 3, "Failed"),
        ("OnFailure", 0, 1, "Succeeded"),
        ("Always", 1, 3, "Failed"),
    ],
)
def test_the_policy_says_which_ends_are_followed_by_a_start(
    simulated: Simulated, policy: str, code: int, starts: int, phase: str
) -> None:
    restart = {"policy": policy, "limit": 2, **FAST}
    job = simulated.job(simulated_role(f"exit {code}"), restart=restart)
    assert simulated.finished(job).status.phase == phase
    assert simulated.starts(job) == starts


@shows(JOB, "spec.restart.policy")
@pytest.mark.process
def test_always_starts_again_what_has_succeeded(cluster: Standing) -> None:
    job = cluster.job(role(NOTE), restart={"policy": "Always", "limit": 0, **FAST})
    cluster.until_noted(job, "worker 0", 3)
    assert cluster.look(job).status.failures == 0


@shows(JOB, "spec.restart.limit")
@pytest.mark.process
@pytest.mark.parametrize("limit", [pytest.param(0, marks=pytest.mark.soak), 2])
def test_the_limit_is_how_many_failures_are_forgiven(cluster: Standing, limit: int) -> None:
    job = cluster.job(role(f"{NOTE}; exit 3"), restart={"limit": limit, **FAST})
    ended = cluster.finished(job)
    assert (ended.status.phase, ended.status.exit_code) == ("Failed", 3)
    assert ended.status.failures == limit + 1
    assert len(cluster.notes(job)) == limit + 1


@shows(JOB, "spec.restart.infrastructureLimit")
@pytest.mark.process
@pytest.mark.parametrize("limit", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_lost_supervisors_have_a_cap_of_their_own(cluster: Standing, limit: int) -> None:
    restart = {"limit": 0, "infrastructureLimit": limit}
    job = cluster.job(role(f"{NOTE}; exec sleep 60"), restart=restart)
    for before in range(limit + 1):
        cluster.until_noted(job, "worker 0", before + 1)
        os.kill(cluster.processes(job).supervisor_pid, signal.SIGKILL)
    ended = cluster.finished(job)
    assert (ended.status.phase, ended.status.reason) == ("Failed", "InfrastructureLimit")
    assert (ended.status.infrastructure_failures, ended.status.failures) == (limit + 1, 0)
    assert len(cluster.notes(job)) == limit + 1


@shows(JOB, "spec.restart.scope")
@pytest.mark.parametrize(("scope", "others"), [("Gang", 2), ("Task", 1)])
@pytest.mark.process
def test_the_scope_is_what_starts_again_together(cluster: Standing, scope: str, others: int) -> None:
    until_b = 'until grep -q "b 0" $SHOAL_OUTPUT/notes; do sleep 0.02; done'
    fails_once = f"{NOTE}; {SECOND_TIME} || {{ {until_b}; exit 1; }}; exec sleep 60"
    job = cluster.job(
        role(fails_once, name="a"),
        role(f"{NOTE}; exec sleep 60", name="b"),
        restart={"scope": scope, "limit": 1, **FAST},
    )
    cluster.until_noted(job, "a 0", 2)
    cluster.until_noted(job, "b 0", others)
    now = cluster.running(job)
    assert now.status.attempt == others, "an attempt is a start of the gang"
    assert cluster.notes(job).count("b 0") == others


@shows(JOB, "spec.restart.backoff")
@pytest.mark.process
def test_backoff_is_waited_for_and_doubles(cluster: Standing) -> None:
    job = cluster.job(
        role("date +%s.%N >> $SHOAL_OUTPUT/notes; exit 1"), restart={"limit": 2, "backoff": "700ms"}
    )
    cluster.finished(job)
    first, second, third = (float(line) for line in cluster.notes(job))
    assert second - first >= 0.7
    assert third - second >= 1.4
    assert third - first < 20.0


RULES = [
    ("Fail", 1, "Failed", 1),
    ("Restart", 2, "Succeeded", 1),
    ("Ignore", 2, "Succeeded", 0),
]
"""Action, how many tasks run, the outcome, and how much of the budget is burnt."""


@shows(JOB, "spec.restart.rules[].exitCodes", "spec.restart.rules[].action")
@pytest.mark.parametrize(("action", "starts", "phase", "burnt"), RULES)
def test_rules_say_what_an_exit_code_means(
    simulated: Simulated, action: str, starts: int, phase: str, burnt: int
) -> None:
    restart = {"limit": 1, "rules": [{"exitCodes": [7, 42], "action": action}], **FAST}
    ended = simulated.finished(simulated.job(simulated_role("exit 42 once"), restart=restart))
    assert (ended.status.phase, ended.status.failures) == (phase, burnt)
    assert simulated.starts(ended) == starts


@shows(JOB, "spec.restart.rules[].exitCodes")
@pytest.mark.process
def test_a_rule_is_about_its_exit_codes_alone(cluster: Standing) -> None:
    rule = {"exitCodes": [7, 137], "action": "Fail"}
    restart = {"limit": 1, "rules": [rule], **FAST}
    other = cluster.finished(cluster.job(role(f"{NOTE}; exit 42"), restart=restart))
    assert (other.status.exit_code, len(cluster.notes(other))) == (42, 2)
    killed = cluster.finished(cluster.job(role(f"{NOTE}; kill -KILL $$"), restart=restart))
    assert (killed.status.exit_code, len(cluster.notes(killed))) == (137, 1)


@shows(JOB, "spec.roles[].restartRules[].exitCodes", "spec.roles[].restartRules[].action")
@pytest.mark.parametrize(("action", "starts", "phase", "burnt"), RULES)
def test_a_roles_own_rules_are_tried_first(
    simulated: Simulated, action: str, starts: int, phase: str, burnt: int
) -> None:
    contrary = {"exitCodes": [42], "action": "Restart" if action == "Fail" else "Fail"}
    own = [{"exitCodes": [42], "action": action}]
    job = simulated.job(
        simulated_role("exit 42 once", restartRules=own),
        restart={"limit": 1, "rules": [contrary], **FAST},
    )
    ended = simulated.finished(job)
    assert (ended.status.phase, ended.status.failures) == (phase, burnt)
    assert simulated.starts(ended) == starts


@shows(JOB, "spec.success.role")
@pytest.mark.process
def test_one_role_may_decide(cluster: Standing) -> None:
    roles = (role("true", name="chief"), role("exec sleep 60", name="server"))
    ended = cluster.finished(cluster.job(*roles, success={"role": "chief"}))
    assert (ended.status.phase, ended.status.exit_code) == ("Succeeded", 0)


@shows(JOB, "spec.success.policy")
@pytest.mark.parametrize(
    ("policy", "first", "second", "phase"),
    [
        ("All", "exit 0", "sleep 0.3", "Succeeded"),
        ("First", "exit 0", "sleep 3600", "Succeeded"),
        ("Any", "sleep 3600", "exit 0", "Succeeded"),
        ("All", "exit 0", "sleep 0.3 exit 5", "Failed"),
    ],
)
def test_the_policy_says_whose_success_decides(
    simulated: Simulated, policy: str, first: str, second: str, phase: str
) -> None:
    both = simulated_role(f"{first} / {second}", replicas=2)
    job = simulated.job(both, success={"policy": policy})
    assert simulated.finished(job).status.phase == phase
    if policy == "First":
        reverse = simulated_role(f"{second} / {first}", replicas=2)
        waits = simulated.job(reverse, success={"policy": policy})
        simulated.until(waits, lambda j: sum(r.succeeded for r in j.status.roles) == 1)
        simulated.running(waits)  # index 1 decides nothing


@shows(JOB, "spec.limits.wallTime")
@pytest.mark.process
def test_wall_time_ends_the_job(cluster: Standing) -> None:
    begin = time.monotonic()
    job = cluster.job(role(f"{NOTE}; exec sleep 60"), limits={"wallTime": "1s"}, restart={"limit": 5})
    ended = cluster.finished(job)
    assert (ended.status.phase, ended.status.reason) == ("Failed", "WallTimeExceeded")
    assert 1.0 <= ended.status.finished - ended.status.started < 20.0
    assert time.monotonic() - begin >= 1.0
    assert cluster.notes(job) == ["worker 0"], "and no budget is spent on it"


@shows(JOB, "spec.limits.idleTimeout")
@pytest.mark.process
def test_an_idle_job_is_ended_and_a_busy_one_is_not(cluster: Standing) -> None:
    limits = {"limits": {"idleTimeout": "1s"}}
    busy = cluster.job(
        role("while :; do :; done", resources={"cpu": "100m", "cpuLimit": "100m"}), **limits
    )
    idle = cluster.job(role("exec sleep 60"), **limits)
    ended = cluster.finished(idle)
    assert (ended.status.phase, ended.status.reason) == ("Failed", "IdleTimeout")
    assert cluster.look(busy).status.phase == "Running"


@shows(JOB, "spec.gracePeriod")
@pytest.mark.process
def test_a_task_has_its_grace_period_and_no_more(cluster: Standing) -> None:
    deaf = """trap 'echo asked >> $SHOAL_OUTPUT/notes' TERM
echo up >> $SHOAL_OUTPUT/notes
while :; do sleep 0.1; date +%s.%N > $SHOAL_OUTPUT/alive; done"""
    job = cluster.job(role(deaf), gracePeriod="1500ms")
    cluster.until_noted(job, "up")
    begin = time.time()
    cluster.client.cancel("default", job.metadata.name)
    cluster.until_noted(job, "asked")
    ended = cluster.finished(job)
    assert ended.status.phase == "Cancelled"
    wait_until(lambda: not cluster.tasks(job), what="its task has ended")
    last = float((cluster.output(job) / "alive").read_text())
    assert 1.0 < last - begin < 10.0, "it lived through most of its grace, and not for long after"
