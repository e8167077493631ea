"""Whole commands as child processes: their wall and CPU time, and what a process holds in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

__all__ = ["SHOAL", "cpu_ms", "memory_mb", "wall_ms"]

SHOAL = str(Path(sys.executable).with_name("shoal"))


def cpu_ms(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """User and system time of one run, in milliseconds."""
    return _run(command, environment)[1]


def wall_ms(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Wall time of one run, in milliseconds."""
    return _run(command, environment)[0]


def memory_mb(pid: int) -> float:
    """Resident memory of a process in MB (10^6 bytes)."""
    return psutil.Process(pid).memory_info().rss / 1e6


def _run(command: Sequence[str], environment: Mapping[str, str] | None) -> tuple[float, float]:
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}")
    return wall * 1000, (usage.ru_utime + usage.ru_stime) * 1000
