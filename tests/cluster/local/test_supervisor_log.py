# ruff: noqa: F811
# (a fixture is imported, and asked for by a parameter of its name)
"""What a task writes: all of it, as it is, within bounds, and never in the task's way."""

import contextlib
import os
import subprocess

import pytest

from shoal.cluster.local import supervisor_processes
from shoal.history import segments
from tests.cluster.local.isolation.fixtures import own_bench  # noqa: F401
from tests.cluster.local.isolation.harness import wait_for

pytestmark = [pytest.mark.process, pytest.mark.slow]

MIB = 1 << 20


def test_bytes_that_are_no_text_are_kept_as_they_are(own_bench):
    task = own_bench.run("sh", "-c", r"printf '\377\376\000\r\n'; printf '\200' >&2")
    assert task.log() == b"\xff\xfe\x00\r\n\x80"


def test_both_streams_in_order_and_at_once(own_bench):
    task = own_bench.start(
        "sh", "-c", "echo 1; echo 2 >&2; echo 3; while [ ! -e go ]; do sleep 0.02; done; echo 4"
    )
    wait_for(lambda: task.log() == b"1\n2\n3\n", "the first lines, while it runs")
    (own_bench.cwd / "go").touch()
    task.exit()
    assert task.log() == b"1\n2\n3\n4\n"


def test_every_line_of_a_chatty_task_arrives(own_bench):
    write = "import os\nfor n in range(20000): os.write(1, b'%d\\n' % n)"
    task = own_bench.run(own_bench.user.python, "-c", write)
    assert task.log() == b"".join(b"%d\n" % number for number in range(20000))


def test_a_gigabyte_is_bounded_on_the_disk_and_costs_little(own_bench):
    bounds = {"max_segment_bytes": 4 * MIB, "max_segments": 4}
    write = "head -c 1073741824 /dev/zero; echo the end"
    task = own_bench.start("sh", "-c", write, log=bounds)
    largest = 0

    def ended():
        nonlocal largest
        with contextlib.suppress(FileNotFoundError):  # rotated away since it was listed
            largest = max(largest, sum(path.stat().st_size for path in task.log_folder.glob("*.log")))
        return task.process.poll() is not None

    wait_for(ended, "the end")
    assert task.exit()["exit_code"] == 0
    assert largest <= 6 * 4 * MIB
    reader = segments.Reader(str(task.log_folder))
    assert reader.size == (1 << 30) + len("the end\n")
    assert reader.start > 0
    assert task.log().endswith(b"\0the end\n")


def test_a_full_disk_costs_the_log_and_not_the_task(own_bench):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = own_bench.folder("home/logs/default/job/small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(small)], check=True)
    try:
        bounds = {"max_segment_bytes": MIB, "max_segments": 8}
        task = own_bench.run(
            "sh", "-c", "head -c 8000000 /dev/zero; echo done; exit 4", name="small", log=bounds
        )
        ended = task.exit()
        assert ended["exit_code"] == 4
        assert ended["log_dropped_bytes"] > 0
        assert segments.Reader(str(small)).size >= 8_000_000
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_one_that_escaped_with_the_log_open_delays_the_end_but_little(own_bench):
    """Without namespaces and groups a process may get away from under its supervisor only by help from
    outside; here a test holds the other end of the pipe."""
    task = own_bench.start("sh", "-c", "echo ready; sleep 600").says("ready")
    pipe = os.open(f"/proc/{task.started()['command_pid']}/fd/1", os.O_WRONLY)
    try:
        task.stop(grace=0)
        assert task.exit()["exit_code"] == 137
        assert not supervisor_processes.start_ticks(task.process.pid)
    finally:
        os.close(pipe)
