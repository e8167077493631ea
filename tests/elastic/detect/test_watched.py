"""A process as its child sees it, also where there are neither process descriptors nor /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from shoal.elastic.detect.sidecar_main import Watched

PROGRAM = """
    import os, subprocess, sys, textwrap
    watcher = '''
        import os, sys, time
        if sys.argv[1] == "poll":
            del os.pidfd_open
        from shoal.elastic.detect.sidecar_main import Watched
        watched = Watched(int(sys.argv[2]))
        assert (watched.descriptor is None) == (sys.argv[1] == "poll")
        print("gone" if watched.gone else "there", watched.stopped, flush=True)
        while not watched.gone:
            time.sleep(0.001)
        print("gone", watched.stopped, time.monotonic(), flush=True)
        watched.kill()
    '''
    subprocess.Popen([sys.executable, "-c", textwrap.dedent(watcher), sys.argv[1], str(os.getpid())])
    sys.stdin.readline()
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("how", ["event", "poll"])
def test_the_end_of_the_parent_is_seen(how: str) -> None:
    """By the process descriptor, and by another parent where there is none; also before it is reaped."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "there False\n"
    killed = time.monotonic()
    os.kill(process.pid, signal.SIGKILL)
    gone, stopped, at = process.stdout.readline().split()
    assert (gone, stopped) == ("gone", "False")
    print(f"{how}: seen after {(float(at) - killed) * 1000:.1f} ms")
    assert process.wait(10) == -signal.SIGKILL
    process.stdin.close()
    process.stdout.close()


def test_the_pid_of_somebody_else_is_never_the_worker() -> None:
    """A worker that ended before its sidecar looked: its number may have gone to another process."""
    assert Watched(os.getpid()).gone
    Watched(os.getpid()).kill()
    assert not Watched(os.getppid()).gone
