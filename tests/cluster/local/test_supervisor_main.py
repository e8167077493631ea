# ruff: noqa: F811
# (a fixture is imported, and asked for by a parameter of its name)
"""A task's life under its supervisor, with real processes."""

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from shoal.cluster.local import launch, supervisor_processes, taskfiles
from shoal.cluster.local.supervisor_main import ALREADY_BEGUN
from tests.cluster.local.isolation.fixtures import bench, own_bench  # noqa: F401
from tests.cluster.local.isolation.harness import wait_for

pytestmark = [pytest.mark.process, pytest.mark.slow]

LOOP = "echo ready; while :; do sleep 0.05; done"
IGNORE_TERM = f"trap '' TERM; {LOOP}"


@pytest.mark.parametrize("code", [0, 1, 77, 255])
def test_the_exit_code_is_the_commands(own_bench, code):
    ended = own_bench.run("sh", "-c", f"exit {code}").exit()
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (code, 0, "Exited")
    assert ended["stop_reason"] is None
    assert 0 < ended["started"] <= ended["ended"]


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT"])
def test_a_signal_is_told_from_an_exit(own_bench, name):
    number = int(getattr(signal, name))
    ended = own_bench.run("sh", "-c", f"kill -{number} $$").exit()
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (128 + number, number, "Signalled")
    assert name in ended["message"]


def test_a_shells_own_128_plus_signal_is_an_exit(own_bench):
    ended = own_bench.run("sh", "-c", "sh -c 'kill -9 $$'; exit $?").exit()
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (137, 0, "Exited")


def test_the_command_has_its_environment_and_folder_and_nothing_else(bench):
    task = bench.run("sh", "-c", "env | sort; pwd; id -u; ls -ld . | cut -c1-10", env={"NAME": "a b\nc"})
    lines = task.log().decode().splitlines()
    names = {line.partition("=")[0] for line in lines if "=" in line}
    expected = {"PATH", "HOME", "PYTHON", "SHOAL_SCRATCH", "SHOAL_OUTPUT", "NAME", "PWD"}
    expected |= {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}
    assert names - {"OLDPWD", "_", "SHLVL"} == expected
    assert str(bench.cwd) in lines
    assert str(bench.user.uid) in lines


def test_the_command_leads_a_session_and_has_no_other_descriptors(own_bench):
    look = (
        "import os; names = [d for d in range(64) if os.path.exists(f'/proc/self/fd/{d}')]\n"
        "print(names, os.getpid() == os.getpgrp() == os.getsid(0), os.readlink('/proc/self/fd/0'))"
    )
    task = own_bench.run(own_bench.user.python, "-c", look)
    assert task.log().decode() == "[0, 1, 2] True /dev/null\n"


def test_no_signal_is_ignored_or_blocked_in_the_command(own_bench):
    task = own_bench.run("cat", "/proc/self/status")
    libc_own = 1 << 31 | 1 << 32  # signals 32 and 33 are the C library's: nobody else can set them
    masks = re.findall(r"Sig(?:Blk|Ign):\s+(\w+)", task.log().decode())
    assert [int(mask, 16) & ~libc_own for mask in masks] == [0, 0]


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["no-such-command"], 127, "command not found in PATH: no-such-command"),
        (["/no/such/command"], 127, "command not found: /no/such/command"),
        (["./plain"], 126, "is not executable"),
        (["./folder"], 126, "is a folder"),
        (["./text"], 126, "is no program"),
        (["./bad-interpreter"], 126, "interpreter"),
        (["./dangling"], 126, "link to nothing"),
        (["true", "x" * 4_000_000], 126, "too long"),
    ],
)
def test_a_command_that_cannot_be_run_says_why(own_bench, argv, code, message):
    for name, mode, text in (
        ("plain", 0o644, "#!/bin/sh\n"),
        ("text", 0o755, "hello"),
        ("bad-interpreter", 0o755, "#!/no/such/shell\n"),
    ):
        (own_bench.cwd / name).write_text(text)
        (own_bench.cwd / name).chmod(mode)
    (own_bench.cwd / "folder").mkdir()
    (own_bench.cwd / "dangling").symlink_to("nothing")
    task = own_bench.run(*argv)
    ended = task.exit()
    assert (ended["exit_code"], ended["reason"]) == (code, "CommandNotFound")
    assert message in ended["message"]
    assert task.log().decode() == f"shoal: {ended['message']}\n"


def test_a_missing_working_directory_is_named(own_bench):
    ended = own_bench.run("true", cwd="/no/such/folder").exit()
    assert (ended["exit_code"], ended["reason"]) == (126, "CommandNotFound")
    assert "/no/such/folder" in ended["message"]


def test_started_names_the_processes(own_bench):
    task = own_bench.start("sleep", "60")
    started = task.started()
    assert started["supervisor_pid"] == task.process.pid
    for who in ("supervisor", "command"):
        pid, ticks = started[f"{who}_pid"], started[f"{who}_start_ticks"]
        assert supervisor_processes.alive(pid, ticks)
    wait_for(lambda: Path(f"/proc/{started['command_pid']}/comm").read_text() == "sleep\n", "exec")
    assert supervisor_processes.parent(started["command_pid"]) == started["init_pid"]
    assert supervisor_processes.parent(started["init_pid"]) == task.process.pid
    assert taskfiles.read(str(task.folder), taskfiles.STARTED, taskfiles.Started).unenforced == ()


def test_sigterm_ends_the_group_within_the_grace(bench):
    task = bench.start("sh", "-c", f"trap 'echo bye; exit 9' TERM; {LOOP}")
    task.says("ready").stop(grace=20, reason="Preempted")
    ended = task.exit()
    assert (ended["exit_code"], ended["reason"], ended["stop_reason"]) == (9, "Exited", "Preempted")
    assert b"bye" in task.log()


def test_a_stopped_task_hears_sigterm(own_bench):
    task = own_bench.start("sh", "-c", f"trap 'exit 9' TERM; {LOOP}")
    task.says("ready")
    os.kill(task.started()["command_pid"], signal.SIGSTOP)
    task.stop(grace=20)
    assert task.exit()["exit_code"] == 9


def test_one_that_ignores_sigterm_is_killed_after_the_grace(bench):
    task = bench.start("sh", "-c", IGNORE_TERM)
    task.says("ready")
    begin = time.monotonic()
    task.stop(grace=0.3)
    ended = task.exit()
    assert time.monotonic() - begin >= 0.3
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (137, 9, "Signalled")
    assert "0.3 s after SIGTERM" in ended["message"]
    assert ended["stop_reason"] == "Cancelled"


def test_a_second_stop_shortens_the_grace_and_never_lengthens_it(own_bench):
    task = own_bench.start("sh", "-c", f"trap 'echo heard' TERM; {LOOP}")
    task.says("ready").stop(grace=600)
    task.says("heard").stop(grace=0.5, reason="Deleted")
    time.sleep(0.1)  # two files within one read would be one
    task.stop(grace=600, reason="Deleted")
    ended = task.exit()
    assert (ended["exit_code"], ended["stop_reason"]) == (137, "Deleted")
    assert task.log().count(b"heard") == 1


def test_no_grace_kills_at_once(own_bench):
    task = own_bench.start("sh", "-c", f"trap 'echo heard' TERM; {LOOP}")
    task.says("ready").stop(grace=0)
    assert task.exit()["exit_code"] == 137
    assert b"heard" not in task.log()


def test_sigterm_without_a_stop_and_other_signals_mean_nothing(own_bench):
    task = own_bench.start("sh", "-c", "echo ready; sleep 0.5; exit 3")
    task.says("ready")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
        task.signal(number)
    assert task.exit()["exit_code"] == 3


def test_a_stop_that_is_there_before_the_start_is_the_end(own_bench):
    task = own_bench.task("sh", "-c", "echo ran")
    stop = taskfiles.Stop(reason="Cancelled", grace_seconds=5, at=0.0)
    taskfiles.write(str(task.folder), taskfiles.STOP, stop)
    ended = task.spawn().exit()
    assert (ended["exit_code"], ended["reason"], ended["stop_reason"]) == (143, "Signalled", "Cancelled")
    assert task.log() == b""
    assert task.record(taskfiles.STARTED) is None


def test_what_it_cannot_read_it_does_not_begin(own_bench):
    task = own_bench.task("true")
    (task.folder / taskfiles.LAUNCH).write_text('{"argv": 1}')
    assert task.spawn().process.wait() == 1
    assert not (task.folder / taskfiles.BEGUN).exists()
    assert "TypeError" in task.errors.read_text().splitlines()[-1]


def test_what_breaks_in_its_start_is_reported(own_bench):
    task = own_bench.task("true")
    document = json.loads((task.folder / taskfiles.LAUNCH).read_text())
    document["env"] = {"PATH": 5}
    (task.folder / taskfiles.LAUNCH).write_text(json.dumps(document))
    ended = task.spawn().exit()
    assert (ended["exit_code"], ended["reason"]) == (126, "StartFailed")
    assert "AttributeError" in ended["message"]
    assert "Traceback" in task.errors.read_text()


def test_a_stop_right_after_the_spawn_is_heard(own_bench):
    for _ in range(5):
        task = own_bench.task("sleep", "600")
        with task.errors.open("ab") as errors:
            spawned = launch.spawn(str(task.folder), errors.fileno())
        stop = taskfiles.Stop(reason="Cancelled", grace_seconds=5, at=0.0)
        taskfiles.write(str(task.folder), taskfiles.STOP, stop)
        os.kill(spawned.pid, signal.SIGTERM)
        os.waitpid(spawned.pid, 0)
        os.close(spawned.ready)
        assert task.record(taskfiles.EXIT)["exit_code"] == 143


def test_no_command_starts_twice(own_bench):
    task = own_bench.run("sh", "-c", "echo once")
    (task.folder / taskfiles.EXIT).unlink()
    assert task.spawn().process.wait() == ALREADY_BEGUN
    assert task.log() == b"once\n"
    assert task.record(taskfiles.EXIT) is None


@pytest.mark.parametrize("wanted", [(), ("memory",)], ids=["namespaces", "none"])
def test_nothing_that_the_command_leaves_behind_survives_it(bench, wanted):
    daemon = "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    leave = f"$PYTHON -c '{daemon}print(\"daemon\",flush=True)\ntime.sleep(600)'; sleep 600 & "
    until = "while [ ! -e go ]; do sleep 0.02; done; exit 5"
    task = bench.start("sh", "-c", leave + until, wanted=wanted).says("daemon")
    below = wait_for(lambda: len(task.below()) >= 4 and task.below(), "all of them")
    (bench.cwd / "go").touch()
    assert task.exit()["exit_code"] == 5
    assert not [pid for pid in below if supervisor_processes.start_ticks(pid)]


@pytest.mark.parametrize("wanted", [(), ("memory",)], ids=["namespaces", "none"])
def test_a_daemon_ends_with_a_stopped_task(bench, wanted):
    daemon = f"(trap '' TERM HUP; setsid sh -c \"{IGNORE_TERM}\" & )"
    task = bench.start("sh", "-c", f"{daemon}; sleep 600", wanted=wanted)
    task.says("ready").stop(grace=5)
    assert task.exit()["exit_code"] == 143


def test_the_lock_is_held_until_nothing_is_left(own_bench):
    task = own_bench.task("sh", "-c", "sleep 600")
    lock = os.open(task.folder / taskfiles.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    task.spawn(held=(lock,))
    os.close(lock)
    task.started()

    def free():
        probe = os.open(task.folder / taskfiles.LOCK, os.O_RDWR)
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            assert error.errno == errno.EWOULDBLOCK
            return False
        finally:
            os.close(probe)
        return True

    assert not free()
    below = task.below()
    task.process.kill()
    wait_for(free, "the lock's release")
    assert not [pid for pid in below if supervisor_processes.start_ticks(pid)]


@pytest.mark.parametrize("wanted", [(), ("memory",)], ids=["namespaces", "none"])
def test_a_killed_init_leaves_nothing_and_is_nobodys_exit(bench, wanted):
    task = bench.start("sh", "-c", f'setsid sh -c "{IGNORE_TERM}" & sleep 600', wanted=wanted)
    below = task.says("ready").below()
    os.kill(task.started()["init_pid"], signal.SIGKILL)
    ended = task.exit()
    assert (ended["exit_code"], ended["reason"]) == (-1, "SupervisorLost")
    assert not [pid for pid in below if supervisor_processes.start_ticks(pid)]


def test_a_supervisor_is_small(own_bench):
    task = own_bench.start("sleep", "60")
    pid = task.started()["supervisor_pid"]
    status = Path(f"/proc/{pid}/status").read_text()
    resident_kib = int(re.search(r"VmRSS:\s+(\d+)", status)[1])
    assert resident_kib < 12 * 1024


def test_a_supervisor_needs_no_package(own_bench):
    code = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from shoal.cluster.local import supervisor_main\n"
        "print(*sorted(name for name in sys.modules if '.' not in name))"
    )
    root = str(Path(supervisor_processes.__file__).parents[3])
    words = [own_bench.user.python, "-I", "-S", "-c", code, root]
    modules = set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    assert "shoal" in modules
    heavy = {
        "ctypes",
        "enum",
        "json",
        "logging",
        "pathlib",
        "re",
        "signal",
        "socket",
        "subprocess",
        "typing",
    }
    assert not modules & heavy


def test_what_it_used_is_told(own_bench):
    burn = "import time; block=b'x'*50_000_000\nwhile time.process_time() < 0.3: pass"
    ended = own_bench.run(own_bench.user.python, "-c", burn).exit()
    assert 0.3 <= ended["cpu_seconds"] < 3
    assert 50_000_000 < ended["peak_memory_bytes"] < 300_000_000
