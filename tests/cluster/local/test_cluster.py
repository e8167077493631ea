"""The local cluster keeps the contract, with real agents, supervisors and processes."""

import os
import signal
import sys

import msgspec
import pytest

from shoal.cluster.base import Refused
from shoal.cluster.local import nodes
from shoal.cluster.local.agent import welcome
from shoal.cluster.local.supervisor_processes import descendants as processes_below
from shoal.objects.errors import Conflict, NotFound
from shoal.objects.task import Probe, TaskBootstrap
from shoal.testing.cluster import ClusterContract, render_nothing, start_group
from shoal.testing.local import wait_until
from tests.support.require import require

pytestmark = [pytest.mark.process, pytest.mark.slow]

STAYS = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('stays', flush=True); time.sleep(600)"
)

ECHOES = """
import os, socket
with socket.create_server(("127.0.0.1", int(os.environ["SHOAL_PORT_WEB"]))) as server:
    print("listens", flush=True)
    while True:
        peer, _ = server.accept()
        with peer:
            came = b""
            while data := peer.recv(65536):
                came += data
            peer.sendall(came)
"""


class Harness:
    def __init__(self, local):
        self.local = local
        self.cluster = local.cluster

    def exits(self, code):
        return ("sh", "-c", f"echo out {code}; exit {code}")

    def sleeps(self):
        return ("sleep", "600")

    def stays(self):
        return (sys.executable, "-I", "-S", "-c", STAYS)

    def until(self, condition):
        wait_until(condition)
        for task in self.cluster.list().tasks:  # it runs before it has said that it ignores signals
            if task.phase == "Running" and STAYS in task.spec.command:
                wait_until(lambda key=task.spec.key: list(self.cluster.logs(key)))

    def silence(self, node):
        self.local.kill(node, signal.SIGSTOP)

    def restore(self, node):
        self.local.kill(node, signal.SIGCONT)

    def hold_admissions(self):
        for name in ("one", "two"):
            self.silence(name)

    def release_admissions(self):
        for name in ("one", "two"):
            self.restore(name)

    def declare(self, node, *, labels, unschedulable, foreign):
        declared = [
            msgspec.structs.replace(each, labels=labels, unschedulable=unschedulable, reserved=foreign)
            if each.name == node
            else each
            for each in nodes.load(self.local.home)
        ]
        nodes.save(self.local.home, declared)

    def ready_when(self):
        script = "sleep 0.3; touch $SHOAL_SCRATCH/ready; exec sleep 600"
        check = ("sh", "-c", "test -e $SHOAL_SCRATCH/ready")
        return ("sh", "-c", script), Probe(command=check, period_seconds=0.1)

    def echoes(self):
        return (sys.executable, "-I", "-S", "-c", ECHOES)

    def never_ready(self):
        return self.sleeps(), Probe(tcp="web", period_seconds=0.1)

    def kill(self, task):
        os.kill(self.local.started(task).command_pid, signal.SIGKILL)


class TestContract(ClusterContract):
    @pytest.fixture
    def harness(self, make_home):
        return Harness(make_home(one={"gpus": ("0", "1")}, two={}))


def test_a_bootstrap_is_variables_files_and_a_command(make_home, make_spec):
    local = make_home()
    spec = make_spec(("false",), env={"MINE": "spec", "BOTH": "spec"})
    bootstrap = TaskBootstrap(
        env={"BOTH": "bootstrap", "RANK": "0"},
        files={"hosts": "a b\n", "bin/run": "#!/bin/sh\necho ran\n"},
        command=(
            "sh", "-c", "echo $MINE $BOTH $RANK; cat $SHOAL_RENDEZVOUS/hosts; $SHOAL_RENDEZVOUS/bin/run",
        ),
    )  # fmt: skip
    start_group(local.cluster, (spec,), lambda group, endpoints: {spec.name: bootstrap})
    wait_until(lambda: local.phase(spec.key) == "Ended")
    assert b"".join(local.cluster.logs(spec.key)) == b"spec spec 0\na b\nran\n"


def test_a_task_has_nothing_of_its_agents_environment(make_home, make_spec):
    local = make_home(environment={"SECRET_OF_THE_AGENT": "x"})
    spec = make_spec(("env",))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Ended")
    names = {line.partition(b"=")[0] for line in b"".join(local.cluster.logs(spec.key)).splitlines()}
    assert b"SECRET_OF_THE_AGENT" not in names
    assert {b"PATH", b"SHOAL_SCRATCH", b"SHOAL_OUTPUT", b"SHOAL_RENDEZVOUS"} <= names


def test_scratch_goes_with_the_task_and_output_with_the_job(make_home, make_spec):
    local = make_home()
    script = "pwd; echo $SHOAL_OUTPUT; mkdir -p deep/er; touch deep/er/file $SHOAL_OUTPUT/result"
    spec = make_spec(("sh", "-c", script))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Ended")
    text = b"".join(local.cluster.logs(spec.key)).decode().split()
    assert text[0] != text[1]
    folder = local.home.output / "default" / spec.job_uid
    assert [path.name for path in folder.iterdir()] == ["result"]
    local.cluster.acknowledge(spec.key)
    node = local.home.node("one")
    wait_until(lambda: not any(list(p.iterdir()) for p in (node.tasks, node.work, node.trash)))
    assert (folder / "result").exists()
    local.cluster.cleanup_job("default", spec.job_uid, outputs=True)
    wait_until(lambda: not folder.exists())


def test_a_replica_that_starts_again_keeps_its_ports(make_home, make_spec):
    local = make_home()
    seen = []

    def render(group, endpoints):
        seen.append(endpoints[0].ports)
        return render_nothing(group, endpoints)

    for incarnation in (1, 2):
        spec = make_spec(("true",), job="again", incarnation=incarnation, ports={"http": 8080})
        start_group(local.cluster, (spec,), render)
        wait_until(lambda key=spec.key: local.phase(key) == "Ended")
        local.cluster.acknowledge(spec.key)
    assert seen[0] == seen[1]
    assert sorted(seen[0]) == ["http", "rendezvous"]


def test_an_acknowledged_task_never_runs_again(make_home, make_spec):
    local = make_home()
    spec = make_spec(("true",))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Ended")
    local.cluster.acknowledge(spec.key)
    for _ in range(2):
        with pytest.raises(Refused, match="does not run again"):
            start_group(local.cluster, (spec,))
        local.kill("one")
        local.up()
        wait_until(lambda: local.cluster.nodes()[0].ready)


def test_a_task_that_was_only_admitted_is_taken_back_by_a_stop(make_home, make_spec):
    local = make_home()
    spec = make_spec(("true",))

    def render(group, endpoints):
        raise LookupError("the server dies here")

    with pytest.raises(LookupError):
        start_group(local.cluster, (spec,), render)
    assert local.phase(spec.key) == "Admitted"
    local.cluster.stop(spec.key, grace_seconds=1, reason="Cancelled")
    outcome = local.task(spec.key).outcome
    assert (outcome.exit_code, outcome.stop_reason) == (143, "Cancelled")
    local.cluster.acknowledge(spec.key)
    assert local.phase(spec.key) == ""


def test_a_refused_group_takes_back_what_an_earlier_start_left(make_home, make_spec):
    local = make_home(one={}, two={})
    group = tuple(
        make_spec(("true",), job="gang", index=i, node=n) for i, n in enumerate(("one", "two"))
    )

    def render(specs, endpoints):
        raise LookupError("the server dies here")

    with pytest.raises(LookupError):
        start_group(local.cluster, group, render)
    larger = (*group, make_spec(("true",), job="gang", index=2, node="two", cpu=9000))
    with pytest.raises(Refused):
        start_group(local.cluster, larger)
    assert not local.cluster.list().tasks


def test_a_command_that_is_not_there(make_home, make_spec):
    local = make_home()
    spec = make_spec(("no-such-command",))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Ended")
    outcome = local.task(spec.key).outcome
    assert (outcome.exit_code, outcome.reason) == (127, "CommandNotFound")


def test_a_rendezvous_file_cannot_leave_its_folder(make_home, make_spec):
    local = make_home()
    for path in ("../escaped", "/tmp/escaped-from-rendezvous", "a/../../escaped"):
        spec = make_spec(("true",))
        bootstrap = TaskBootstrap(files={path: "x"})
        start_group(local.cluster, (spec,), lambda group, _, files=bootstrap: {group[0].name: files})
        wait_until(lambda key=spec.key: local.phase(key) == "Ended")
        outcome = local.task(spec.key).outcome
        assert (outcome.reason, outcome.exit_code) == ("StartFailed", -1)
        assert "outside" in outcome.message


def test_a_watch_says_to_list_again_when_an_agent_was_away(make_home, make_spec):
    local = make_home()
    watch = local.cluster.watch()
    assert not watch.relist
    local.kill("one")
    wait_until(lambda: watch.wait(0.1) == [] and watch.relist)
    local.up()
    wait_until(lambda: watch.wait(0.1) == [] and watch.relist)
    spec = make_spec(("true",))
    start_group(local.cluster, (spec,))
    wait_until(lambda: any(task.phase == "Ended" for task in watch.wait(0.1)))
    watch.close()


def test_nodes_come_and_go_with_their_declarations(make_home, make_spec):
    from shoal.cluster.local.components import ensure_up
    from shoal.testing.local import nodes

    local = make_home(one={}, two={})
    cluster = local.cluster
    started = ensure_up(local.home, nodes(one={"cpu": 4000}, three={}), server=False)
    assert sorted(started.nodes) == ["one", "three"]
    wait_until(lambda: [(n.name, n.ready) for n in cluster.nodes()] == [("one", True), ("three", True)])
    assert cluster.nodes()[0].capacity.cpu == 4000
    spec = make_spec(("sleep", "600"), node="three")
    start_group(cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    with pytest.raises(Conflict, match="three"):
        ensure_up(local.home, nodes(one={}), server=False)


@pytest.mark.parametrize("isolation", ["default", "strict"])
def test_the_tasks_of_a_gang_reach_each_other_across_nodes(make_home, make_spec, isolation):
    local = make_home(one={}, two={})
    states = local.cluster.nodes()[0].isolations
    lacking = [name for name, state in states.items() if state != "enforced"]
    if isolation == "strict" and lacking:
        require("strict", f"not enforced here: {', '.join(lacking)}")
    listens = (
        "import os, socket\n"
        "with socket.create_server(('127.0.0.1', int(os.environ['PORT']))) as server:\n"
        "    server.accept()[0].sendall(b'hello')\n"
    )
    asks = (
        "import os, socket, sys, time\n"
        "while True:\n"
        "    try:\n"
        "        s = socket.create_connection(('127.0.0.1', int(os.environ['PORT'])))\n"
        "        break\n"
        "    except ConnectionRefusedError:\n"
        "        time.sleep(0.01)\n"
        "sys.exit(3 if s.recv(5) == b'hello' else 4)\n"
    )
    gang = tuple(
        make_spec(
            (sys.executable, "-c", source), job="gang", index=index, node=node, isolation=isolation
        )
        for index, (node, source) in enumerate((("one", listens), ("two", asks)))
    )

    def render(group, endpoints):
        port = str(endpoints[0].ports["rendezvous"])
        return {spec.name: TaskBootstrap(env={"PORT": port}) for spec in group}

    start_group(local.cluster, gang, render)
    wait_until(lambda: {local.phase(spec.key) for spec in gang} == {"Ended"})
    codes = [local.task(spec.key).outcome.exit_code for spec in gang]
    assert codes == [0, 3], [b"".join(local.cluster.logs(spec.key)) for spec in gang]


def test_a_task_cannot_drive_its_agent(make_home, make_spec, tmp_path):
    """Its home is hidden from it where that can be had; where not, its ancestry tells."""
    local = make_home()
    spec = make_spec(("sh", "-c", "sleep 600 & setsid sleep 601 & wait"))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    started = local.started(local.task(spec.key))
    wait_until(lambda: len(processes_below(started.supervisor_pid)) >= 4)
    uid = os.geteuid()
    assert welcome(os.getpid(), uid, None)
    assert not welcome(os.getpid(), uid + 1, None)
    assert not welcome(0, uid, None)
    task = str(local.home.node("one").tasks / f"default.{spec.name}")
    for pid in processes_below(started.supervisor_pid):
        assert not welcome(pid, uid, None), "whichever home it is"
        assert welcome(pid, uid, task), "a home of its own, inside a task"
        assert not welcome(pid, uid, str(tmp_path))


def test_nothing_is_known_of_what_is_not_here(make_home, make_spec):
    local = make_home()
    key = make_spec(("true",)).key
    with pytest.raises(NotFound):
        local.cluster.exec(key, ("true",))
    assert list(local.cluster.logs(key)) == []
