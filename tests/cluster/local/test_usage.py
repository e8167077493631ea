"""What tasks use, and whether they idle."""

import os
import subprocess
import sys

import pytest

from shoal.cluster.local import usage
from shoal.cluster.local.supervisor_processes import below
from shoal.cluster.local.supervisor_processes import table as all_processes
from shoal.testing.cluster import start_group
from shoal.testing.local import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_cpu_and_memory_of_a_task_that_runs_and_of_one_that_has_ended(make_home, make_spec):
    local = make_home()
    burn = (
        "import time\n"
        "block = bytearray(64 << 20)\n"
        "while time.process_time() < 0.5: pass\n"
        "print('burnt', flush=True)\n"
        "input()\n"
    )
    spec = make_spec(("sh", "-c", f'python3 -c "{burn}" < /dev/zero || sleep 1; exit 0'))
    start_group(local.cluster, (spec,))
    wait_until(lambda: b"burnt" in b"".join(local.cluster.logs(spec.key)))
    so_far = local.cluster.usage([spec.key])[spec.key]
    assert so_far.cpu_seconds >= 0.4
    assert so_far.peak_memory_bytes >= 64 << 20
    assert so_far.gpu_ratio is None
    local.cluster.stop(spec.key, grace_seconds=0, reason="Cancelled")
    wait_until(lambda: local.phase(spec.key) == "Ended")
    ended = local.cluster.usage([spec.key])[spec.key]
    assert ended.cpu_seconds >= 0.4
    assert ended.peak_memory_bytes >= 64 << 20
    assert local.task(spec.key).usage == ended
    local.cluster.acknowledge(spec.key)
    assert local.cluster.usage([spec.key]) == {}


def test_a_task_that_does_nothing_is_idle_until_it_works(make_home, make_spec, tmp_path):
    local = make_home()
    script = "until [ -e go ]; do sleep 0.5; done; while :; do :; done"
    spec = make_spec(("sh", "-c", script), working_directory=str(tmp_path))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    task = local.task(spec.key)
    assert task.idle_since == 0.0
    wait_until(lambda: local.task(spec.key).idle_since > 0.0)
    assert local.task(spec.key).idle_since >= task.started
    (tmp_path / "go").touch()
    wait_until(lambda: local.task(spec.key).idle_since == 0.0)


def test_the_process_table_counts_what_is_below_a_process():
    """Where there are no control groups."""
    burn = "import time\nblock = bytearray(32 << 20)\nwhile time.process_time() < 0.3: pass\nprint(1)\n"
    words = [sys.executable, "-I", "-S", "-c", burn + "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        table = all_processes()
        assert child.pid in below(os.getpid(), table)
        cpu_seconds, memory_bytes = usage._used_below(os.getpid(), table)
        assert cpu_seconds >= 0.2
        assert memory_bytes >= 32 << 20
        child.communicate(b"\n")
    assert usage._used_below(0, table) == (0.0, 0)


def test_groups_of_both_versions_are_read(tmp_path):
    first, second = tmp_path / "v1", tmp_path / "v2"
    for folder, files in (
        (first, {"cpuacct.usage": "1500000000", "memory.usage_in_bytes": "7",
                 "memory.max_usage_in_bytes": "9"}),
        (second, {"cpu.stat": "nr_periods 1\nusage_usec 2500000\n", "memory.current": "5",
                  "memory.peak": "6"}),
    ):  # fmt: skip
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text + "\n")
    assert usage._group_cpu([str(tmp_path), str(first)]) == 1.5
    assert usage._group_cpu([str(second)]) == 2.5
    assert usage._group_cpu([str(tmp_path)]) is None
    assert usage._group_memory([str(tmp_path), str(first)]) == (7, 9)
    assert usage._group_memory([str(second)]) == (5, 6)
    assert usage._group_memory([]) == (None, 0)
