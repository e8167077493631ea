"""Many short tasks: how many a second from submission to the recorded end."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.home import fresh_home
from bench.processes import SHOAL, wall_ms
from bench.row import Row

__all__ = ["rows"]

_TASKS = 1000


def rows() -> list[Row]:
    """One row. Beside it: as many supervisors' worth of bare Python, two at a time."""
    with fresh_home() as home:
        wall_ms([SHOAL, "run", "--", "true"], home)
        seconds = wall_ms([SHOAL, "run", "--array", f"0-{_TASKS - 1}", "--", "true"], home) / 1000
    return [
        Row(
            f"{_TASKS} array tasks of `true`",
            50,
            _TASKS / seconds,
            "tasks/s",
            f"{seconds:.0f} s in all",
            f"python -I -S -c 'execve true', 2 at a time: {_bare(200):.0f}/s",
            higher=True,
        )
    ]


def _bare(count: int) -> float:
    program = "import os; p = os.fork(); p or os.execv('/bin/true', ['true']); os.wait()"
    began = time.perf_counter()
    running: list[subprocess.Popen[bytes]] = []
    for _ in range(count):
        running.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", program]))
        if len(running) == 2:
            running.pop(0).wait()
    for process in running:
        process.wait()
    return count / (time.perf_counter() - began)
