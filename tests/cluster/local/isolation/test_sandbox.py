"""The network of strict jobs: apart from everybody's, shared by the tasks of one job."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from shoal.cluster.local import supervisor_processes
from shoal.cluster.local.isolation import cleanup, namespaces
from shoal.cluster.local.isolation.probe import probe
from shoal.cluster.local.isolation.sandbox import Sandbox
from tests.cluster.local.isolation.harness import wait_for

pytestmark = [pytest.mark.process, pytest.mark.slow]

STRICT = {
    "mode": "strict",
    "wanted": tuple(name for name in namespaces.STRICT if name not in ("cpu", "memory")),
}
SERVE = (
    "import socket, sys\n"
    "listener = socket.create_server(('127.0.0.1', 7777)); print('ready', flush=True)\n"
    "while True: listener.accept()[0].sendall(sys.argv[1].encode())\n"
)
ASK = "import socket; print(socket.create_connection(('127.0.0.1', 7777), 5).recv(9).decode())"


@pytest.fixture(autouse=True)
def _granted():
    if probe()["network"] != "enforced":
        pytest.skip(f"no network namespaces here: {probe()['network']}")


def serve(bench, job, **fields):
    task = bench.start(bench.user.python, "-c", SERVE, job, job=job, **STRICT, **fields)
    return task.says("ready")


def network(task):
    return Path(f"/proc/{task.started()['command_pid']}/ns/net").readlink()


def ask(bench, job):
    task = bench.run(bench.user.python, "-c", ASK, job=job, **STRICT)
    return task.log().decode().splitlines()[-1]


def test_two_jobs_use_one_port_and_reach_only_their_own(bench):
    first, second = serve(bench, "first"), serve(bench, "second")
    assert ask(bench, "first") == "first"
    assert ask(bench, "second") == "second"
    assert "refused" in ask(bench, "third")
    for task in (first, second):
        task.stop(grace=0)


def test_the_machines_network_cannot_be_reached(bench):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        knock = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        task = bench.run(bench.user.python, "-c", knock, **STRICT)
        assert b"refused" in task.log()
    look = "import json, socket; print(json.dumps([name for _, name in socket.if_nameindex()]))"
    task = bench.run(bench.user.python, "-c", look, **STRICT)
    assert "lo" in json.loads(task.log())
    assert not {"eth0", "ens3", "enp0s3"}.intersection(json.loads(task.log()))


def test_abstract_sockets_are_apart_too(bench):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(b"\0shoal-test-abstract")
        listener.listen()
        knock = "import socket; socket.socket(socket.AF_UNIX).connect(b'\\0shoal-test-abstract')"
        assert b"refused" in bench.run(bench.user.python, "-c", knock, **STRICT).log()


def test_the_network_lives_as_long_as_one_of_the_jobs_tasks(bench):
    folder = bench.home / "sandboxes" / "job"
    first = serve(bench, "job")
    second = bench.start("sh", "-c", "echo ready; sleep 600", job="job", **STRICT).says("ready")
    assert ask(bench, "job") == "job"
    assert len(list(folder.iterdir())) == 3  # the lock and two notes
    first.stop(grace=0)
    first.exit()
    third = serve(bench, "job")
    assert network(second) == network(third)
    for task in (second, third):
        task.stop(grace=0)
        task.exit()
    assert not folder.exists()


def test_many_that_come_at_once_come_into_one(bench):
    tasks = [bench.task("sh", "-c", "echo ready; sleep 600", **STRICT) for _ in range(6)]
    for task in tasks:
        task.spawn()
    for task in tasks:
        task.says("ready")
    assert len({network(task) for task in tasks}) == 1
    assert network(tasks[0]) != Path("/proc/self/ns/net").readlink()
    for task in tasks:
        task.stop(grace=0)


def test_a_killed_supervisors_note_is_forgotten(bench):
    first = serve(bench, "job")
    init = first.started()["init_pid"]
    first.process.kill()
    first.process.wait()
    wait_for(lambda: not supervisor_processes.start_ticks(init), "the end of the init")
    serve(bench, "job").stop(grace=0)  # the port is free, for the network is another
    wait_for(lambda: not (bench.home / "sandboxes" / "job").exists(), "the folder's removal")


def test_sweeping_leaves_what_lives(own_bench):
    folder = own_bench.folder("home/sandboxes/default/job")
    (folder / "1-1").write_text("net 5")
    (folder / "lock").touch()
    alive = own_bench.folder("home/sandboxes/default/alive")
    sandbox = Sandbox(str(alive))
    sandbox.lock()
    descriptor = os.open("/proc/self/ns/net", os.O_RDONLY)
    sandbox.join({"net": descriptor})
    sandbox.unlock()
    cleanup.sweep_sandboxes(own_bench.home / "sandboxes")
    assert not folder.exists()
    assert alive.exists()
    sandbox.leave()
    os.close(descriptor)
    assert not alive.exists()


def test_a_folder_is_removed_whatever_a_task_made_of_it(bench):
    task = bench.run("sh", "-c", "cd $SHOAL_SCRATCH; mkdir -p a/b; touch a/b/c; chmod 0 a/b a")
    scratch = task.path("scratch")
    remove = (
        "from pathlib import Path\n"
        "from shoal.cluster.local.isolation.cleanup import remove_tree\n"
        f"print(remove_tree(Path({str(scratch)!r})))"
    )
    source = Path(__file__).parents[4] / "src"
    words = bench.user.words([bench.user.python, "-c", remove])
    done = subprocess.run(
        words, env={"PYTHONPATH": str(source)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    assert not scratch.exists()
    assert cleanup.remove_tree(scratch) == []
