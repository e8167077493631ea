"""CPU, memory and process limits on real tasks: by control groups where there are any, by watching
where there are none."""

import os
import subprocess
from pathlib import Path

import pytest

from shoal.cluster.local.isolation import cgroups

pytestmark = [pytest.mark.process, pytest.mark.slow]

MIB = 1 << 20
GREEDY = "import time\nblocks=[]\nwhile True: blocks.append(bytearray(10_000_000)); time.sleep(0.02)"
BURN = (
    "import time\n"
    "end = time.monotonic() + 1.5\n"
    "while time.monotonic() < end: pass\n"
    "print(time.process_time())"
)


def controlled(bench, controller):
    """Skip where this machine has no such control groups for us."""
    if controller not in bench.parents:
        pytest.skip(f"no control groups for {controller} here")


def test_memory_over_the_limit_is_the_end_and_is_told_apart(own_bench):
    controlled(own_bench, "memory")
    task = own_bench.run(own_bench.user.python, "-c", GREEDY, limits={"memory_bytes": 64 * MIB})
    ended = task.exit()
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (137, 9, "OutOfMemory")
    assert "64 MiB" in ended["message"]
    assert 50 * MIB < ended["peak_memory_bytes"] <= 65 * MIB


def test_a_child_over_the_limit_is_told_too(own_bench):
    controlled(own_bench, "memory")
    command = f'"$PYTHON" -c "{GREEDY}"; exit 3'
    ended = own_bench.run("sh", "-c", command, limits={"memory_bytes": 64 * MIB}).exit()
    assert ended["reason"] == "OutOfMemory"
    assert ended["exit_code"] in (3, 137)


def test_shared_memory_counts(own_bench):
    controlled(own_bench, "memory")
    fill = "head -c 200000000 /dev/zero > /dev/shm/x"
    ended = own_bench.run("sh", "-c", fill, limits={"memory_bytes": 64 * MIB}).exit()
    assert ended["exit_code"] != 0


def test_a_sigkill_from_elsewhere_is_not_out_of_memory(own_bench):
    ended = own_bench.run("sh", "-c", "kill -9 $$", limits={"memory_bytes": 64 * MIB}).exit()
    assert ended["reason"] == "Signalled"


def test_without_control_groups_memory_is_watched(bench):
    task = bench.start(
        bench.user.python, "-c", GREEDY, limits={"memory_bytes": 64 * MIB}, cgroup_parents={}
    )
    assert any(entry.startswith("memory: ") for entry in task.started()["unenforced"])
    ended = task.exit()
    assert (ended["exit_code"], ended["reason"]) == (137, "OutOfMemory")
    assert 64 * MIB < ended["peak_memory_bytes"] < 300 * MIB


def test_what_processes_share_is_watched_once(own_bench):
    share = (
        "import mmap, os, time\n"
        "shared = mmap.mmap(-1, 60_000_000); shared.write(b'x' * 60_000_000)\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        for at in range(0, 60_000_000, 4096): shared[at]\n"
        "        time.sleep(1.5); os._exit(0)\n"
        "for _ in range(4): os.wait()\n"
    )
    limits = {"memory_bytes": 150 * MIB}
    ended = own_bench.run(own_bench.user.python, "-c", share, limits=limits, cgroup_parents={}).exit()
    assert (ended["exit_code"], ended["reason"]) == (0, "Exited")


def test_the_cpu_limit_is_hard(own_bench):
    controlled(own_bench, "cpu")
    limits = {"cpu_millis": 100, "cpu_limit_millis": 200}
    task = own_bench.run(own_bench.user.python, "-c", BURN, limits=limits)
    assert float(task.log()) < 0.2 * 1.5 + 0.25


def test_the_cpu_request_is_a_weight(own_bench):
    controlled(own_bench, "cpu")
    task = own_bench.start("sleep", "60", limits={"cpu_millis": 2500})
    (folder,) = [path for path in task.started()["cgroups"] if path.startswith(own_bench.parents["cpu"])]
    shares, weight = Path(folder, "cpu.shares"), Path(folder, "cpu.weight")
    assert (shares if shares.exists() else weight).read_text().strip() in ("2560", "98")


def test_a_fork_bomb_is_bounded(own_bench):
    controlled(own_bench, "pids")
    bomb = (
        "import os\n"
        "try:\n"
        "  while True:\n"
        "    if os.fork() == 0:\n"
        "      while True: os.fork()\n"
        "except OSError: print('full')"
    )
    task = own_bench.start(own_bench.user.python, "-c", bomb, limits={"pids": 30})
    task.says("full")
    assert len(task.below()) < 40
    task.stop(grace=0)
    task.exit()


def test_a_user_to_whom_groups_were_delegated_has_them(bench):
    controlled(bench, "memory")
    if os.geteuid() != 0:
        pytest.skip("delegating needs root")
    bench.delegate()
    limits = {"memory_bytes": 64 * MIB, "cpu_millis": 500}
    task = bench.start(bench.user.python, "-c", GREEDY, limits=limits, cgroup_parents=bench.parents)
    assert task.started()["unenforced"] == []
    assert task.exit()["reason"] == "OutOfMemory"


def test_groups_that_nobody_can_enter_are_told(own_bench):
    """As a folder that looks like a group and is none."""
    false = own_bench.folder("false")
    limits = {"memory_bytes": 64 * MIB}
    task = own_bench.start("true", limits=limits, cgroup_parents={"memory": str(false)})
    assert [entry.split(":")[0] for entry in task.started()["unenforced"]] == ["memory"]
    assert task.exit()["exit_code"] == 0
    assert not list(false.iterdir())


def test_what_is_in_a_stray_group_is_killed_and_the_group_removed(own_bench):
    controlled(own_bench, "pids")
    groups = cgroups.Groups(own_bench.parents, "default.stray")
    groups.create({"cpu_millis": 100, "memory_bytes": 1 << 28, "pids": 50})
    groups.create_killing()
    assert set(groups.folders) == set(own_bench.parents)
    nested = [Path(path, "nested") for path in groups.paths]
    for path in nested:
        path.mkdir()
    child = subprocess.Popen(["sleep", "600"])
    for path in nested:
        cgroups.write(f"{path}/cgroup.procs", str(child.pid))
    assert cgroups.remove_strays(own_bench.parents, {"default.stray"}) == []
    assert child.poll() is None
    assert cgroups.remove_strays(own_bench.parents, set()) == []
    assert child.wait(30) == -9
    assert not any(Path(path).exists() for path in groups.paths)
    assert groups.out_of_memory_kills() == groups.peak_memory_bytes() == 0
