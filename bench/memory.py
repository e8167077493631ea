"""What the small processes hold: an agent with a hundred tasks, and a supervisor."""

from __future__ import annotations

import sys
import time

import psutil

from bench.home import fresh_home
from bench.processes import SHOAL, memory_mb, wall_ms
from bench.row import Row, p50

__all__ = ["rows"]


def rows() -> list[Row]:
    """Two rows. Beside the supervisor: a Python that has imported nothing."""
    with fresh_home() as home:
        wall_ms([SHOAL, "run", "-d", "--array", "0-99", "--cpu", "10m", "--", "sleep", "1000"], home)
        supervisors: list[psutil.Process] = []
        deadline = time.monotonic() + 60
        while len(supervisors) < 100 and time.monotonic() < deadline:
            time.sleep(0.2)
            agent = _of_home("shoal.cluster.local.agent", home["SHOAL_HOME"])[0]
            # the agent's children alone: a supervisor's own child, the namespace's init, looks alike
            supervisors = [
                process
                for process in _of_home("supervisor.py", home["SHOAL_HOME"])
                if process.ppid() == agent.pid
            ]
        time.sleep(2)  # the last of them has started its command
        held = [memory_mb(process.pid) for process in supervisors]
        agent_held = memory_mb(agent.pid)
    bare = psutil.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    time.sleep(0.5)
    floor = memory_mb(bare.pid)
    bare.kill()
    bare.wait()
    return [
        Row(f"agent with {len(supervisors)} tasks", 60, agent_held, "MB"),
        Row(
            "supervisor", 12, p50(held), "MB", f"largest {max(held):.1f}", f"bare python: {floor:.1f} MB"
        ),
    ]


def _of_home(word: str, home: str) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if any(word in part for part in words) and any(home in part for part in words):
            found.append(process)
    return found
