"""`shoal run` looks on while server and agent die together, and brings them back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.cluster.local import components
from shoal.cluster.local.home import Home
from shoal.cluster.local.shutdown import shut_down
from shoal.testing.local import leftovers, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_the_last_component_that_dies_is_brought_back(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    ready, go = tmp_path / "ready", tmp_path / "go"
    script = f"touch {ready}; while [ ! -e {go} ]; do sleep 0.05; done; exit 9"
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", "run", "--", "sh", "-c", script],
        env={**os.environ, "SHOAL_HOME": str(home.path)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(ready.exists, what="the task")
        before = pids(home)
        for pid in before.values():
            os.kill(pid, signal.SIGSTOP)  # neither may bring the other back
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: len(new := pids(home)) == len(before) and not new.items() & before.items(),
            what="the components' return",
        )
        go.touch()
        assert process.wait(30) == 9
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        shut_down(home)
    assert not leftovers(home)


def pids(home: Home) -> dict[str, int]:
    found = {name: components.running(home, name) for name in components.components_of(home)}
    return {name: running.pid for name, running in found.items() if running is not None}
