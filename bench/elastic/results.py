"""What each measurement gave, kept as one JSON file each.

So a long run can be made in parts, and repeated in part: the page shows the newest of each measurement
with its own date, commit and load.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.elastic.jobs.job import REPOSITORY
from bench.elastic.report import Report, System
from bench.row import Row

__all__ = ["Result", "load", "measure", "save"]


@dataclass(frozen=True)
class Result:
    """One measurement, made once."""

    name: str
    when: str
    """Its begin, in UTC, as `2026-11-21 07:00`."""
    commit: str
    """Of the checkout, with a `+` where tracked files differ from it."""
    seconds: float
    """How long it took."""
    load: tuple[float, float]
    """The load average of a minute, before and after: the second is mostly the measurement's own."""
    command: str
    machine: str
    versions: str
    report: Report


def measure(name: str, make: Callable[[], Report], command: str, versions: str) -> Result:
    """Make a measurement now."""
    before, began, when = os.getloadavg()[0], time.monotonic(), time.gmtime()
    report = make()
    seconds = time.monotonic() - began
    return Result(
        name,
        time.strftime("%Y-%m-%d %H:%M", when),
        _commit(),
        seconds,
        (before, os.getloadavg()[0]),
        command,
        _machine(),
        versions,
        report,
    )


def save(folder: Path, result: Result) -> None:
    """Keep it in place of what the measurement of this name gave before."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(result), indent=1))
    new.replace(path)


def load(folder: Path) -> dict[str, Result]:
    """All that is kept in the folder, by name.

    Raises:
        ValueError, TypeError, KeyError: a file is none of `save`'s.
    """
    return {path.stem: _result(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))}


def _result(kept: dict[str, Any]) -> Result:
    told = kept.pop("report")
    rows = [Row(**each) for each in told["rows"]]
    systems = [System(**each) for each in told["systems"]]
    before, after = kept.pop("load")
    return Result(**kept, load=(before, after), report=Report(rows, systems, told["remarks"]))


def _machine() -> str:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return f"{system}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


def _commit() -> str:
    """Ten digits; empty where there is no history."""
    words = ["git", "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, check=False, text=True, timeout=30)
    return done.stdout.strip()
