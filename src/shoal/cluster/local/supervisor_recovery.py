"""Finishes the work of a supervisor that is gone before it could say how its task ended.

The init notices within an instant that its supervisor is gone and ends the task; or it had noted the
command's end before. So there is little to do but wait until nothing of the task is left, by whatever
means it takes, and then to say what the supervisor would have said: the command's own exit, if that had
already happened, otherwise that the supervisor was lost.

For the agent, in a helper thread. Where the task's processes became the agent's children it must reap
them some time; whether they are gone does not wait for that.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import msgspec

from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local import supervisor_outcome as outcome
from shoal.cluster.local import supervisor_processes as processes
from shoal.cluster.local.isolation import cgroups
from shoal.cluster.local.isolation.sandbox import sweep
from shoal.cluster.local.taskfiles import Exit

__all__ = ["settle"]

_SCRATCH = "SHOAL_SCRATCH"
_SCRIPT = "/supervisor.py"
_PATIENCE_SECONDS = 1.0
_POLL_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.25


def settle(folder: str) -> Exit:
    """The supervisor of the task with this folder is gone: end what is left of the task, and say how it
    ended, in `exit.json` too unless the disk has no room for it. Returns when nothing is left, however
    long that takes: an instant, but for a process that the kernel itself holds. Idempotent.

    A living supervisor would be taken for a part of what is left. Where there is no `begun` nothing has
    happened yet, and the task may as well be started again as settled.
    """
    launch = files.read(folder, "launch.json") or {}
    groups = cgroups.Groups(launch.get("cgroup_parents", {}), _group_name(launch))
    groups.find()
    _await_silence(folder, launch)
    killed_for_memory, peak = groups.out_of_memory_kills(), groups.peak_memory_bytes()
    cpu_seconds = groups.cpu_seconds()
    while not cgroups.remove(groups.paths):
        continue  # it has its own patience
    sandbox = launch.get("isolation", {}).get("sandbox", "")
    if sandbox:
        sweep(sandbox)
    ended = files.read(folder, "exit.json")
    if ended is None:
        ended = outcome.classify(
            files.Status.read(folder),
            stop=files.read(folder, "stop.json"),
            out_of_memory_kills=killed_for_memory,
            memory_bytes=launch.get("limits", {}).get("memory_bytes"),
        )
        ended |= {"peak_memory_bytes": peak, "cpu_seconds": cpu_seconds, **_times(folder)}
        with contextlib.suppress(OSError):  # who asked has the answer anyway
            files.ExitDraft(folder).publish(ended)
    return msgspec.convert(ended, Exit)


def _await_silence(folder: str, launch: dict[str, Any]) -> None:
    """Wait until none of the task's processes is left: a moment for the init to do it, then by force."""
    patience = time.monotonic() + _PATIENCE_SECONDS
    pause = _POLL_SECONDS
    while left := _left(folder, launch):
        for pid in left if time.monotonic() > patience else ():
            processes.kill(pid)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


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
    begun = float(started.get("started", 0.0))
    with contextlib.suppress(FileNotFoundError):
        begun = begun or os.stat(f"{folder}/begun").st_mtime
    return {"started": begun or ended, "ended": max(begun, ended)}
