"""Finishes the work of a supervisor that is gone before it could say how its task ended.

The init notices within an instant that its supervisor is gone and ends the task; or it had noted the
command's end before. So there is little to do but wait until nothing of the task is left, by whatever
means it takes, and then to say what the supervisor would have said: the command's own exit, if that had
already happened, otherwise that the supervisor was lost.

For the agent, which calls `settle` again and again from its loop. Where the task was the agent's
grandchild its orphans become the agent's children: it must reap them, or they never look gone.
"""

from __future__ import annotations

import os
import time

from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local import supervisor_outcome as outcome
from shoal.cluster.local import supervisor_processes as processes
from shoal.cluster.local.isolation import cgroups
from shoal.cluster.local.isolation.sandbox import sweep

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from typing import Any

__all__ = ["settle"]

_SCRATCH = "SHOAL_SCRATCH"
_SCRIPT = "/supervisor.py"


def settle(folder: str, *, force: bool = False) -> bool:
    """The supervisor of the task with this folder is gone: see that all of it is, and that `exit.json`
    is there. True when that is done; False while something still lives: call again in a moment, after
    a second or so with `force`, which kills (a living supervisor too). Idempotent.

    A folder without `begun` has no task to settle: nothing has happened there yet.

    Raises:
        OSError: the disk has no room for `exit.json`; call again.
    """
    launch = files.read(folder, "launch.json") or {}
    groups = cgroups.Groups(launch.get("cgroup_parents", {}), _group_name(launch))
    if files.read(folder, "exit.json") is not None:
        return cgroups.remove(groups.paths, 0.0)
    left = _left(folder, launch)
    if left:
        for pid in left if force else ():
            processes.kill(pid)
        return False
    killed_for_memory, peak = groups.out_of_memory_kills(), groups.peak_memory_bytes()
    cpu_seconds = groups.cpu_seconds()
    if not cgroups.remove(groups.paths, 0.0):
        return False
    ended = outcome.classify(
        files.Status.read(folder),
        stop=files.read(folder, "stop.json"),
        out_of_memory_kills=killed_for_memory,
        memory_bytes=launch.get("limits", {}).get("memory_bytes"),
    )
    usage = {"peak_memory_bytes": peak, "cpu_seconds": cpu_seconds}
    files.ExitDraft(folder).publish(ended | usage | _times(folder))
    sandbox = launch.get("isolation", {}).get("sandbox", "")
    if sandbox:
        sweep(sandbox)
    return True


def _group_name(launch: dict[str, Any]) -> str:
    return f"{launch.get('namespace', '')}.{launch.get('task', '')}"


def _left(folder: str, launch: dict[str, Any]) -> list[int]:
    """Processes of the supervisor's that still live: itself, its init; and, where no PID namespace held
    them, those that were started with the task's scratch folder in their environment."""
    own = processes.with_argument(folder, _SCRIPT)
    if own:
        return own
    scratch = launch.get("env", {}).get(_SCRATCH)
    strays = processes.with_environment(f"{_SCRATCH}={scratch}") if scratch else []
    for pid in strays:
        processes.kill(pid)  # nobody is left who would do it
    return strays


def _times(folder: str) -> dict[str, float]:
    """When it was started, and when its end was noted, if it was."""
    started = files.read(folder, "started.json") or {}
    ended = time.time()
    if files.Status.read(folder) is not None:
        ended = os.stat(f"{folder}/status").st_mtime
    begun = float(started.get("started", 0.0)) or os.stat(f"{folder}/begun").st_mtime
    return {"started": begun, "ended": max(begun, ended)}
