"""What of a home is left that should be gone: while it is up with no job in it, and once it is down."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from shoal.cluster.local import groups
from shoal.cluster.local.home import Home
from shoal.testing.chaos import Chaos
from shoal.testing.local import leftovers

__all__ = ["descriptors", "of_tasks", "when_down"]

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def of_tasks(chaos: Chaos) -> list[str]:
    """Of a home that is up and has no job: supervisors, processes, mounts, control groups, folders,
    ledger entries, port leases and sandboxes of tasks. One line each."""
    home = chaos.home
    found = [f"supervisor {victim.pid} of {victim.task}" for victim in chaos.supervisors()]
    up = {home.component_lock(path.stem).holder() for path in home.run.glob("*.lock")}
    ours = tuple(f"process {pid}:" for pid in up)
    found += [line for line in leftovers(home) if not line.startswith(ours)]
    for node in sorted(home.nodes.iterdir()):
        for name in ("tasks", "work", "trash"):
            found += [f"folder {path}" for path in (node / name).iterdir()]
        found += _ledger(node / "ledger.db")
    found += [f"twice {path}" for path in home.output.glob("*/*/twice-*")]
    found += [f"sandbox {path}" for path in home.sandboxes.glob("*/*")]
    return found


def when_down(home: Home) -> list[str]:
    """Of a home that is down: processes, mounts, control groups and sockets. Ports are claimed by
    processes alone, so where none is left no port is held."""
    scopes = {f"shoal-{groups.scope(home.node(path.name))}" for path in home.nodes.glob("*")}
    folders = [folder for folder, _, _ in os.walk(_CONTROL_GROUPS) if Path(folder).name in scopes]
    sockets = [
        line for line in Path("/proc/net/unix").read_text().splitlines() if f"{home.path}/" in line
    ]
    return [
        *leftovers(home),
        *(f"control group {folder}" for folder in folders),
        *(f"socket {line}" for line in sockets),
    ]


def descriptors(pid: int) -> int:
    """How many descriptors the process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def _ledger(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as ledger:
        return [
            f"{path.parent.name}: {table} {row[:2]}"
            for table in ("tasks", "leases", "forgotten")
            for row in ledger.execute(f"SELECT * FROM {table}")
        ]
