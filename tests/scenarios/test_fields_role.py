"""The fields of a role, each shown on tasks that run."""

import json
import socket
import sys
from typing import Any

import pytest

from shoal.objects.errors import Invalid
from shoal.objects.kinds import JOB
from shoal.testing.local import wait_until
from tests.scenarios.fields import shows
from tests.scenarios.standing import Standing, python, role
from tests.support.require import require

pytestmark = [pytest.mark.process, pytest.mark.slow]

NOTE = 'echo "$SHOAL_ROLE $SHOAL_INDEX on $SHOAL_NODE" >> $SHOAL_OUTPUT/notes'
STAY = f"{NOTE}; exec sleep 60"
ROLE = "spec.roles[]"
VOLUMES = [{"name": "data", "mountPath": "/data", "source": {"emptyDir": {}}, "readOnly": True}]


@shows(JOB, f"{ROLE}.name", f"{ROLE}.replicas")
def test_each_role_runs_its_replicas_under_its_name(cluster: Standing) -> None:
    script = 'echo "$SHOAL_ROLE $SHOAL_INDEX" >> $SHOAL_OUTPUT/notes'
    job = cluster.job(role(script, name="chief"), role(script, name="helper", replicas=2))
    assert cluster.finished(job).status.phase == "Succeeded"
    assert sorted(cluster.notes(job)) == ["chief 0", "helper 0", "helper 1"]


@shows(JOB, f"{ROLE}.replicas")
def test_replicas_can_be_changed_while_the_job_runs(cluster: Standing) -> None:
    def of(replicas: int) -> dict[str, Any]:
        return role(STAY, replicas=replicas, nodeSelector={"disk": "ssd"})

    job = cluster.job(of(2))
    cluster.until_noted(job, "worker 1 on gold")
    cluster.edit(job, roles=[of(3)])
    cluster.until_noted(job, "worker 2 on gold")
    cluster.edit(job, roles=[of(1)])
    cluster.until(job, lambda j: sum(r.running for r in j.status.roles) == 1)
    assert len(cluster.notes(job)) == 3, "the first was never started again"


@shows(JOB, f"{ROLE}.minReplicas")
def test_an_elastic_role_starts_with_what_fits_and_grows(cluster: Standing) -> None:
    large = {"resources": {"cpu": "2"}}
    blocker = cluster.job(role(STAY, resources={"cpu": "4"}))
    cluster.running(blocker)
    elastic = cluster.job(role(STAY, replicas=3, minReplicas=1, **large))
    cluster.until_noted(elastic, "worker 0 on gold")
    assert cluster.running(elastic).status.roles[0].running == 1
    rigid = cluster.job(role(STAY, replicas=2, **large))
    assert cluster.waiting(rigid) == "NoRoom"
    cluster.client.cancel("default", rigid.metadata.name)
    cluster.client.cancel("default", blocker.metadata.name)
    cluster.until_noted(elastic, "worker 1 on plain")
    assert sorted(cluster.until_noted(elastic, "worker 2 on plain"))[0] == "worker 0 on gold"


@shows(JOB, f"{ROLE}.command", f"{ROLE}.args")
def test_args_follow_the_command(cluster: Standing) -> None:
    script = "import sys, json; print(json.dumps(sys.argv[1:]))"
    words = ["two words", "", "$HOME", "é"]
    job = cluster.job(role(command=[sys.executable, "-c", script, "first"], args=words))
    assert cluster.finished(job).status.phase == "Succeeded"
    assert json.loads(cluster.log(job)) == ["first", *words]


@shows(JOB, f"{ROLE}.env")
def test_variables_reach_the_task_as_they_are(cluster: Standing) -> None:
    script = "import os, json; print(json.dumps([os.environ['A'], os.environ['B']]))"
    value = "line\nwith = and $A and é"
    job = cluster.job(role(command=[sys.executable, "-c", script], env={"A": value, "B": ""}))
    assert cluster.finished(job).status.phase == "Succeeded"
    assert json.loads(cluster.log(job)) == [value, ""]


@shows(JOB, f"{ROLE}.workingDirectory")
def test_the_task_runs_in_its_working_directory(cluster: Standing, tmp_path) -> None:
    (tmp_path / "here").write_text("found\n")
    job = cluster.job(role("cat here; pwd", workingDirectory=str(tmp_path)))
    assert cluster.finished(job).status.phase == "Succeeded"
    assert cluster.log(job).decode() == f"found\n{tmp_path}\n"
    without = cluster.job(role('test "$PWD" = "$SHOAL_SCRATCH" && echo in scratch'))
    cluster.finished(without)
    assert cluster.log(without) == b"in scratch\n"


@shows(JOB, f"{ROLE}.image", f"{ROLE}.template")
@shows(JOB, *(f"{ROLE}.volumes[].{name}" for name in ("name", "mountPath", "source", "readOnly")))
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("image", "python:3.12", "needs a cluster that runs containers"),
        ("template", {"spec": {"hostNetwork": True}}, "needs a Kubernetes cluster"),
        ("volumes", VOLUMES, "need a cluster that runs containers"),
    ],
)
def test_what_needs_containers_is_refused(cluster: Standing, field, value, reason) -> None:
    with pytest.raises(Invalid) as refused:
        cluster.job(role("true", **{field: value}))
    (problem,) = refused.value.problems
    assert problem.path == f"spec.roles[0].{field}"
    assert reason in problem.message
    left_at_default = cluster.job(role("true", image="", template={}))
    assert cluster.finished(left_at_default).status.phase == "Succeeded"


LISTEN = """
import os, socket
with socket.create_server(("127.0.0.1", int(os.environ["SHOAL_PORT_WEB"]))) as server:
    with server.accept()[0] as peer:
        peer.sendall(b"hello")
"""


@shows(JOB, f"{ROLE}.ports[].name")
def test_a_named_port_is_leased_and_told_to_every_task(cluster: Standing) -> None:
    ask = """
import json, os, socket, time
(server,) = json.loads(os.environ["SHOAL_TASKS"])["server"]
while True:
    try:
        with socket.create_connection((server["host"], server["ports"]["web"])) as peer:
            print(peer.recv(9).decode(), server["ports"]["web"])
            break
    except ConnectionRefusedError:
        time.sleep(0.02)
"""
    job = cluster.job(
        role(name="server", command=python(LISTEN), ports=[{"name": "web"}]),
        role(name="client", command=python(ask)),
    )
    assert cluster.finished(job).status.phase == "Succeeded", cluster.log(job)
    said, port = cluster.log(job, role="client").split()
    assert said == b"hello"
    assert 1024 < int(port) < 65536


READY = 'test -e "$SHOAL_OUTPUT/ready"'
SERVE = """
import http.server, os, pathlib, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 500)
        self.end_headers()
ready = pathlib.Path(os.environ["SHOAL_OUTPUT"]) / "ready"
while not ready.exists():
    time.sleep(0.02)
http.server.HTTPServer(("127.0.0.1", int(os.environ["SHOAL_PORT_WEB"])), Handler).serve_forever()
"""


@shows(JOB, f"{ROLE}.readiness.command", f"{ROLE}.readiness.tcp", f"{ROLE}.readiness.http")
@shows(JOB, f"{ROLE}.readiness.periodSeconds", f"{ROLE}.readiness.failures")
def test_a_task_is_ready_once_its_probe_succeeds(cluster: Standing) -> None:
    often = {"periodSeconds": 0.1, "failures": 1}
    serves = {"command": python(SERVE), "ports": [{"name": "web"}]}
    probes = {"tcp": {"tcp": "web"}, "http": {"http": "web/health"}, "wrong": {"http": "web/none"}}
    job = cluster.job(
        role(STAY, name="command", readiness={"command": ["sh", "-c", READY], **often}),
        *(role(name=name, readiness={**each, **often}, **serves) for name, each in probes.items()),
        role(STAY, name="none"),
    )
    cluster.running(job)

    def ready() -> set[str]:
        return {task.role for task in cluster.tasks(job) if task.ready}

    wait_until(lambda: ready() == {"none"}, what="no probe succeeds yet")
    flag = cluster.output(job) / "ready"
    flag.touch()
    wait_until(lambda: ready() == {"none", "command", "tcp", "http"}, what="the probes succeed")
    flag.unlink()
    wait_until(lambda: "command" not in ready(), what="one failure takes readiness back")


@shows(JOB, f"{ROLE}.readiness.timeoutSeconds")
def test_a_probe_that_takes_too_long_fails(cluster: Standing) -> None:
    slow = {"command": ["sh", "-c", "echo >> $SHOAL_OUTPUT/probes; sleep 1"], "periodSeconds": 0.05}
    job = cluster.job(
        role(STAY, readiness={**slow, "timeoutSeconds": 0.1}),
        role(STAY, name="patient", readiness={**slow, "timeoutSeconds": 30}),
    )
    wait_until(lambda: len(cluster.notes(job, "probes")) > 5, what="several probes")
    wait_until(lambda: {t.role for t in cluster.tasks(job) if t.ready} == {"patient"}, what="patience")


def test_a_probe_has_one_way_and_names_a_port(cluster: Standing) -> None:
    for probe, reason in (
        ({}, "exactly one of command, tcp and http"),
        ({"tcp": "web", "http": "web/"}, "exactly one of command, tcp and http"),
        ({"tcp": "wb"}, "no port of the role is called wb; did you mean web?"),
        ({"tcp": "web", "periodSeconds": 0}, "must be greater than 0"),
    ):
        with pytest.raises(Invalid) as refused:
            cluster.job(role("true", ports=[{"name": "web"}], readiness=probe))
        assert reason in refused.value.problems[0].message


HOLD = """
import os, socket, time
port = int(os.environ["SHOAL_PORT_WEB"])
with socket.create_server(("127.0.0.1", port)), open(os.environ["SHOAL_OUTPUT"] + "/notes", "a") as file:
    print("port", port, file=file, flush=True)
    time.sleep(60)
"""


@shows(JOB, f"{ROLE}.ports[].port")
def test_the_number_of_a_port_is_used_where_the_job_has_a_network_of_its_own(cluster: Standing) -> None:
    hold = role(command=python(HOLD), ports=[{"name": "web", "port": 8080}])
    jobs = [cluster.job(hold, isolation="strict") for _ in "ab"]
    if (
        cluster.until(jobs[0], lambda j: j.status.phase != "Pending").status.reason
        == "IsolationUnavailable"
    ):
        require("strict", "no job has a network of its own here")
    for job in jobs:
        cluster.until_noted(job, "port 8080")
    shared = cluster.job(hold)
    cluster.running(shared)
    wait_until(lambda: bool(cluster.notes(shared)), what="the port of the job in the shared network")
    (said,) = cluster.notes(shared)
    leased = int(said.removeprefix("port "))
    assert leased != 8080
    with socket.create_connection(("127.0.0.1", leased)), socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", 8080)) != 0, "the other networks are their jobs' own"


SPIN = """
import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
base = os.environ["SHOAL_OUTPUT"]
open(base + "/ready-" + os.environ["SHOAL_ROLE"], "w").close()
while len([name for name in os.listdir(base) if name.startswith("ready-")]) < 2:
    time.sleep(0.01)
begin, before = time.monotonic(), time.process_time()
while time.monotonic() - begin < 2.0:
    pass
with open(base + "/notes", "a") as file:
    print(os.environ["SHOAL_ROLE"], time.process_time() - before, file=file)
"""


@shows(JOB, f"{ROLE}.resources.cpu")
def test_cpu_is_counted_by_admission_and_weighs_when_cores_are_busy(cluster: Standing) -> None:
    on_gold = {"nodeSelector": {"disk": "ssd"}}
    spin = {"command": python(SPIN), **on_gold}
    job = cluster.job(
        role(name="heavy", resources={"cpu": "1750m"}, **spin),
        role(name="light", resources={"cpu": "175m"}, **spin),
    )
    cluster.running(job)
    third = cluster.job(role("true", resources={"cpu": "100m"}, **on_gold))
    assert cluster.waiting(third) == "NoRoom"
    assert cluster.finished(job).status.phase == "Succeeded"
    assert cluster.finished(third).status.phase == "Succeeded"
    if (why := cluster.isolation("cpu")) != "enforced":
        require("cgroups", f"processor time is not shared out by weight here: {why}")
    used = dict(line.split() for line in cluster.notes(job))
    assert float(used["heavy"]) > 3 * float(used["light"]), used


@shows(JOB, f"{ROLE}.resources.cpuLimit")
def test_cpu_limit_is_a_hard_quota(cluster: Standing) -> None:
    spin = """
import time
begin = time.monotonic()
while time.monotonic() - begin < 2.0:
    pass
print(time.process_time() / (time.monotonic() - begin))
"""
    job = cluster.job(role(command=python(spin), resources={"cpu": "100m", "cpuLimit": "200m"}))
    assert cluster.finished(job).status.phase == "Succeeded"
    if (why := cluster.isolation("cpu")) != "enforced":
        require("cgroups", f"there is no quota of processor time here: {why}")
    assert float(cluster.log(job)) < 0.3


@shows(JOB, f"{ROLE}.resources.memory")
def test_memory_is_a_hard_limit_and_counted_by_admission(cluster: Standing) -> None:
    grow = "import sys, time; held = b'x' * (300 << 20); time.sleep(float(sys.argv[1]))"
    greedy = cluster.job(role(command=python(grow, "60"), resources={"cpu": "100m", "memory": "64Mi"}))
    modest = cluster.job(role(command=python(grow, "0.5"), resources={"cpu": "100m", "memory": "600Mi"}))
    ended = cluster.finished(greedy)
    assert (ended.status.phase, ended.status.reason) == ("Failed", "OutOfMemory")
    assert ended.status.exit_code == 137
    assert cluster.finished(modest).status.phase == "Succeeded"
    first = cluster.job(role(STAY, resources={"cpu": "100m", "memory": "1500Mi"}))
    cluster.running(first)
    second = cluster.job(role(STAY, resources={"cpu": "100m", "memory": "1500Mi"}))
    assert cluster.waiting(second) == "NoRoom"


@shows(JOB, f"{ROLE}.resources.gpu")
def test_whole_gpus_are_given_out_one_by_one(cluster: Standing) -> None:
    see = "echo $CUDA_VISIBLE_DEVICES >> $SHOAL_OUTPUT/notes; exec sleep 60"
    one = {"resources": {"cpu": "100m", "gpu": 1}}
    first, second = cluster.job(role(see, **one)), cluster.job(role(see, **one))
    for job in (first, second):
        wait_until(lambda job=job: bool(cluster.notes(job)), what="the devices that a task sees")
    assert sorted(cluster.notes(first) + cluster.notes(second)) == ["GPU-a", "GPU-b"]
    third = cluster.job(role(see, **one))
    assert cluster.waiting(third) == "NoRoom"
    without = cluster.job(role("echo seen: $CUDA_VISIBLE_DEVICES"))
    cluster.finished(without)
    assert cluster.log(without) == b"seen:\n"
