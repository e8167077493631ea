"""The same kill under torchrun: how long nothing is learned, and how many steps are done again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SCRIPT = Path(__file__).parent / "language_model" / "ddp.py"
STEP = re.compile(r"step (\d+)/")
LIMIT_SECONDS = 90.0


@dataclass(frozen=True)
class Restart:
    """`pause_seconds` from the signal to the first step that had not been done before it."""

    killed_after: int
    pause_seconds: float
    redone: int


def kill_one(workers: int, kill_after: int, checkpoint_every: int) -> Restart | None:
    """Train on `workers` processes, kill one after that step; None if it never comes back."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "3",
            f"--nproc-per-node={workers}", str(SCRIPT), "--log-every", "1", "--steps", "100000",
            "--checkpoint-every", str(checkpoint_every),
        ]  # fmt: skip
        # without the first variable torchrun 2.13 and later do not recover at all: pytorch#135712
        environment = {
            **os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1",
            "SHOAL_OUTPUT": folder, "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        try:
            return _watch(process, kill_after)
        finally:
            _end(process)


def _watch(process: subprocess.Popen[str], kill_after: int) -> Restart | None:
    assert process.stdout is not None
    killed_at, killed_step, redone = 0.0, 0, 0
    deadline = time.monotonic() + LIMIT_SECONDS
    for line in process.stdout:
        if time.monotonic() > deadline:
            return None
        match = STEP.search(line)
        if match is None:
            continue
        step = int(match[1])
        if not killed_at and step >= kill_after:
            psutil.Process(process.pid).children()[-1].kill()
            killed_at, killed_step = time.monotonic(), step
        elif killed_at and step <= killed_step:
            redone += 1
        elif killed_at and redone:
            return Restart(killed_step, time.monotonic() - killed_at, redone)
    return None


def _end(process: subprocess.Popen[str]) -> None:
    children = psutil.Process(process.pid).children(recursive=True)
    for each in [*children, process]:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait(10.0)
