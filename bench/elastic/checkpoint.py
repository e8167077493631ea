"""How long a checkpoint of 256 MiB holds up the training thread, beside torch.save and DCP (G17).

All ways take turns in one process of its own (`workers/checkpoints`), each after the one before has all
its bytes on disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.elastic.report import Report
from bench.row import Row, p50, p95

__all__ = ["report"]

_MIB, _GOAL_MS = 256, 30.0
_DEADLINE_SECONDS = 900.0


def report(rounds: int, folder: Path) -> Report:
    """G17: Shoal's stall, with the others beside it, and what writing costs the steps meanwhile."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.elastic.workers.checkpoints"]
    command += [str(rounds), str(folder)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_DEADLINE_SECONDS,
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    others = [name for name in found if not name.startswith("shoal")]
    beside = "; ".join(
        f"{name} {p50(found[name]):.0f} ms (p95 {p95(found[name]):.0f})" for name in others
    )
    stalls = found["shoal"]
    rows = [
        Row(
            f"checkpoint of {_MIB} MiB: stall",
            _GOAL_MS,
            p95(stalls),
            "ms",
            _spread(stalls),
            beside,
            number="G17",
        ),
        Row(
            "the same while the one before is written",
            _GOAL_MS,
            p95(found["shoal, disk busy"]),
            "ms",
            _spread(found["shoal, disk busy"]),
            number="G17",
        ),
    ]
    quiet, busy = found["shoal: steps, quiet"], found["shoal: steps, writing"]
    memory, disk = found["shoal: load, memory"][0], found["shoal: load, disk"][0]
    remark = (
        f"Training steps of one thread beside it: {p50(quiet):.1f} ms (p95 {p95(quiet):.1f}) quiet, "
        f"{p50(busy):.1f} ms (p95 {p95(busy):.1f}, longest {max(busy):.1f}) while a checkpoint is "
        f"hashed and written. From commit to disk {p50(found['shoal: to disk']):.0f} ms; loaded from "
        f"memory in {memory:.0f} ms, from disk in {disk:.0f} ms. torch.save returns before its bytes "
        "are on disk; the others force them there."
    )
    return Report(rows, remarks=[remark])


def _spread(values: list[float]) -> str:
    return f"p95 of {len(values)}; p50 {p50(values):.1f}, longest {max(values):.1f}"
