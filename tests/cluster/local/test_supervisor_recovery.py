# ruff: noqa: F811
# (a fixture is imported, and asked for by a parameter of its name)
"""A supervisor is killed, anywhere: nothing of its task is left, and an exit that happened counts."""

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

import shoal.cluster.local
from shoal.cluster.local import supervisor_processes, taskfiles
from shoal.cluster.local.task_monitor import settle
from tests.cluster.local.isolation.fixtures import bench, own_bench  # noqa: F401
from tests.cluster.local.isolation.harness import wait_for

pytestmark = [pytest.mark.process, pytest.mark.slow]

SOURCES = sorted(Path(shoal.cluster.local.__file__).parent.glob("supervisor*.py"))
POINTS = sorted({point for path in SOURCES
                 for point in re.findall(r'faults\.point\("([^"]+)"\)', path.read_text())})  # fmt: skip
IN_INIT = {"supervisor.init.status.recorded"}
KNOWN = {"supervisor.command.ended", "supervisor.cgroups.removed", "supervisor.exit.recorded"} | IN_INIT
"""Points after which the command's own exit is known."""
NAMESPACES = pytest.mark.parametrize("wanted", [(), ("memory",)], ids=["namespaces", "none"])


def settled(task):
    """What an agent finds out about a task whose supervisor it sees gone."""
    task.process.wait(30)
    found = taskfiles.read(str(task.folder), taskfiles.EXIT, taskfiles.Exit) or settle(str(task.folder))
    assert found == taskfiles.read(str(task.folder), taskfiles.EXIT, taskfiles.Exit)
    assert settle(str(task.folder)) == found
    return found


def test_the_points_are_all_here():
    assert set(POINTS) > KNOWN
    assert len(POINTS) >= 9


@NAMESPACES
@pytest.mark.parametrize("point", sorted(set(POINTS) - {"supervisor.stop.signalled"}))
def test_killed_at_a_point(bench, point, wanted):
    claim = bench.cwd / "claim"
    task = bench.task(
        "sh", "-c", "set -C; echo ran > claim || exit 99; setsid sleep 600 & exit 7", wanted=wanted
    )
    task.spawn(faults=f"{point}:delay=600" if point in IN_INIT else f"{point}:kill")
    if point in IN_INIT:
        status = wait_for(
            lambda: (task.folder / "status").exists() and (task.folder / "status").read_text().strip()
        )
        assert '"exit_code": 7' in status
        for pid in supervisor_processes.with_argument(str(task.folder), "/supervisor.py"):
            os.kill(pid, signal.SIGKILL)
    end = settled(task)
    if point in KNOWN:
        assert (end.exit_code, end.reason) == (7, "Exited")
        assert claim.read_text() == "ran\n"
    elif point in ("supervisor.command.released", "supervisor.started.recorded"):
        assert (end.exit_code, end.reason) in ((7, "Exited"), (-1, "SupervisorLost"))
    else:
        assert (end.exit_code, end.reason) == (-1, "SupervisorLost")
        assert not claim.exists()
    assert end.started <= end.ended


@NAMESPACES
def test_killed_while_the_command_runs(bench, wanted):
    leave = "(trap '' TERM HUP; setsid sleep 600 &) ; echo ready; sleep 600"
    task = bench.start("sh", "-c", leave, wanted=wanted).says("ready")
    below = task.below()
    task.process.kill()
    end = settled(task)
    assert (end.exit_code, end.reason, end.stop_reason) == (-1, "SupervisorLost", None)
    assert not [pid for pid in below if supervisor_processes.start_ticks(pid)]


@NAMESPACES
def test_killed_while_it_stops_the_command(bench, wanted):
    task = bench.start(
        "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done", wanted=wanted
    )
    task.says("ready").stop(grace=600, reason="Preempted")
    time.sleep(0.05)
    task.process.kill()
    end = settled(task)
    assert (end.reason, end.stop_reason) == ("SupervisorLost", "Preempted")


@NAMESPACES
def test_killed_together_with_its_init(bench, wanted):
    """The last resort, without namespaces and groups: what was started with the task's scratch folder in
    its environment."""
    task = bench.start("sh", "-c", "setsid sleep 600 & echo ready; sleep 600", wanted=wanted)
    below = task.says("ready").below()
    started = task.started()
    os.kill(started["supervisor_pid"], signal.SIGSTOP)
    os.kill(started["init_pid"], signal.SIGKILL)
    task.process.kill()
    assert settled(task).reason == "SupervisorLost"
    assert not [pid for pid in below if supervisor_processes.start_ticks(pid)]


def test_an_init_that_hangs_is_killed(own_bench):
    task = own_bench.start("sh", "-c", "echo ready; sleep 600").says("ready")
    below = task.below()
    os.kill(task.started()["init_pid"], signal.SIGSTOP)
    task.process.kill()
    assert settled(task).reason == "SupervisorLost"
    assert not [pid for pid in below if supervisor_processes.start_ticks(pid)]


def test_an_init_that_hangs_does_not_outlive_its_grace(own_bench):
    task = own_bench.start("sh", "-c", "echo ready; sleep 600").says("ready")
    os.kill(task.started()["init_pid"], signal.SIGSTOP)
    task.stop(grace=0.1)
    ended = task.exit()
    assert (ended["exit_code"], ended["reason"]) == (137, "Signalled")


def test_killed_at_any_moment(own_bench):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for number in range(12):
        command = f"set -C; echo x > claim{number} || exit 99; exit 7"
        task = own_bench.start("sh", "-c", command)
        time.sleep(moments.uniform(0, 0.06))
        task.process.kill()
        task.process.wait()
        if not (task.folder / taskfiles.BEGUN).exists():
            continue
        end = settled(task)
        assert (end.exit_code, end.reason) in ((7, "Exited"), (-1, "SupervisorLost"))


def test_a_torn_note_is_no_exit(own_bench):
    task = own_bench.task("true")
    (task.folder / taskfiles.BEGUN).touch()
    (task.folder / "status").write_text('{"exit_code": 0, "sig')
    end = settle(str(task.folder))
    assert (end.exit_code, end.reason) == (-1, "SupervisorLost")


def test_a_full_disk_does_not_lose_the_answer(own_bench, monkeypatch):
    task = own_bench.task("true")
    (task.folder / taskfiles.BEGUN).touch()

    def full(folder):
        raise OSError(28, "No space left on device", folder)

    monkeypatch.setattr("shoal.cluster.local.supervisor_files.ExitDraft", full)
    assert settle(str(task.folder)).reason == "SupervisorLost"
