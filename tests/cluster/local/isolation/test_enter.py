"""Running a command beside a task, in its isolation."""

import contextlib
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from shoal.cluster.local import isolation, supervisor_processes
from shoal.cluster.local.agent import task_folder
from shoal.cluster.local.isolation import namespaces
from shoal.cluster.local.isolation.enter import NO_TASK
from shoal.cluster.local.isolation.probe import probe
from tests.cluster.local.isolation.harness import Bench, users, wait_for

pytestmark = [pytest.mark.process, pytest.mark.slow]

ENTER = str(Path(isolation.__file__).with_name("enter.py"))


STRICT = tuple(name for name in namespaces.STRICT if name not in ("cpu", "memory"))


TASKS = [
    pytest.param((user, mode), id=f"{mode}-{user.name}")
    for user in users()
    for mode in ("default", "strict")
]


@contextlib.contextmanager
def running(user, mode):
    """A task that runs, with something of its own to be seen."""
    if mode == "strict" and any(probe()[name] != "enforced" for name in STRICT):
        pytest.skip("this machine does not grant strict isolation")
    bench = Bench(user)
    try:
        wanted = STRICT if mode == "strict" else ()
        script = "echo mine > /tmp/own; echo ready; sleep 600"
        made = bench.start("sh", "-c", script, env={"NAME": "value"}, mode=mode, wanted=wanted)
        yield made.says("ready")
    finally:
        bench.close()


@pytest.fixture(scope="module", params=TASKS)
def task(request):
    with running(*request.param) as made:
        yield made


@pytest.fixture(params=TASKS)
def own_task(request):
    """As `task`, for a test that ends it."""
    with running(*request.param) as made:
        yield made


def words(task, *command, tty=False):
    user = task.bench.user
    options = ["--tty"] if tty else []
    return user.words([user.python, "-I", "-S", ENTER, *options, str(task.folder), *command])


def run(task, *command, **options):
    return subprocess.run(
        words(task, *command), capture_output=True, text=True, timeout=30, check=False, env={}, **options
    )


def test_it_stands_where_the_task_stands(task):
    look = "cat /tmp/own; pwd; echo $NAME; id -u; cat; tr '\\0' ' ' < /proc/1/cmdline"
    done = run(task, "sh", "-c", look, input="in\n")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[:3] == ["mine", str(task.bench.cwd), "value"]
    assert lines[3:5] == [str(task.bench.user.uid), "in"]
    assert "supervisor.py" in lines[5]


def test_it_is_no_freer_than_the_task(task):
    own = "grep -E 'Cap(Prm|Eff|Bnd|Inh)' /proc/self/status; sed s/.*:// /proc/self/cgroup"
    task_status = Path(f"/proc/{task.started()['command_pid']}/status").read_text()
    lines = run(task, "sh", "-c", own).stdout.splitlines()
    assert len(lines) > 4
    for line in lines:
        assert not line.startswith("Cap") or line in task_status
    in_groups = any(line.endswith(task.folder.name) for line in lines)
    assert in_groups == bool(task.started()["cgroups"])


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -9 $$"), 137),
        (("no-such",), 127),
        (("/tmp",), 126),
    ],
)
def test_the_exit_code_is_the_commands(task, command, code):
    done = run(task, *command)
    assert done.returncode == code
    assert bool(done.stderr) == (code in (126, 127))


def test_a_terminal_is_its_terminal(task):
    master, slave = pty.openpty()
    program = (
        "import os, signal\n"
        "print(os.isatty(0), os.isatty(1), os.environ['TERM'], 'ready', flush=True)\n"
        "signal.pause()"
    )
    command = words(task, task.bench.user.python, "-c", program, tty=True)
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    process = subprocess.Popen(command, **streams, start_new_session=True, env={})
    os.close(slave)
    seen = b""
    while b"ready" not in seen:
        seen += os.read(master, 1000)
    assert seen == b"True True xterm-256color ready\r\n"
    os.write(master, b"\x03")  # Ctrl-C reaches the group that has the terminal
    assert process.wait(30) == 130
    os.close(master)


def test_it_ends_with_the_task(own_task):
    task = own_task
    process = subprocess.Popen(
        words(task, "sh", "-c", "echo on; sleep 600"), stdout=subprocess.PIPE, env={}
    )
    assert process.stdout.readline() == b"on\n"
    task.stop(grace=0)
    task.exit()
    assert process.wait(30) == 137
    process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_its_end_is_the_commands(task, number):
    process = subprocess.Popen(
        words(task, "sh", "-c", "echo on; sleep 600"), stdout=subprocess.PIPE, env={}
    )
    assert process.stdout.readline() == b"on\n"
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    process.stdout.close()


def test_killed_it_takes_the_command_along(task):
    command = words(task, "sh", "-c", "echo on; exec sleep 601")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={})
    assert process.stdout.readline() == b"on\n"
    (child,) = supervisor_processes.descendants(process.pid)
    assert task_folder(child) == str(task.folder)
    process.kill()
    process.wait()
    wait_for(lambda: not supervisor_processes.start_ticks(child), "its end")
    process.stdout.close()
    assert child not in task.below()


def test_without_namespaces_it_still_ends_with_the_task(bench):
    task = bench.start("sh", "-c", "echo ready; sleep 600", wanted=("memory",)).says("ready")
    process = subprocess.Popen(
        words(task, "sh", "-c", "echo on; sleep 600"), stdout=subprocess.PIPE, env={}
    )
    assert process.stdout.readline() == b"on\n"
    task.stop(grace=0)
    task.exit()
    assert process.wait(30) == 137
    process.stdout.close()


def test_there_is_nothing_to_enter_after_the_end(own_bench):
    task = own_bench.run("true")
    done = run(task, "true")
    assert (done.returncode, done.stderr) == (NO_TASK, "shoal: the task does not run\n")
    never = own_bench.task("true")
    assert run(never, "true").returncode == NO_TASK


def test_an_entering_process_cannot_be_looked_into(task):
    """As a hostile task would: it waits for somebody to come in, and tries to get hold of them."""
    hunt = (
        "import os\n"
        "print('ready', flush=True)\n"
        "caught = set()\n"
        "own = {1, os.getpid(), os.getppid()}\n"
        "while not os.path.exists('/tmp/enough'):\n"
        "    for name in os.listdir('/proc'):\n"
        "        if name.isdigit() and int(name) not in own:\n"
        "            try: caught |= {os.readlink(f'/proc/{name}/fd/{d}') for d in range(3, 16)}\n"
        "            except OSError: pass\n"
        "print([path for path in caught if '/proc' in path or 'cgroup' in path or ':[' in path])\n"
    )
    hunter = task.bench.start(task.bench.user.python, "-c", hunt).says("ready")
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        assert run(hunter, "true").returncode == 0
    run(hunter, "touch", "/tmp/enough")
    hunter.exit()
    assert hunter.log() == b"ready\n[]\n"
