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
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local import supervisor_outcome as outcome
from shoal.cluster.local import supervisor_processes as processes
from shoal.cluster.local import taskfiles
from shoal.cluster.local.isolation import cgroups
from shoal.cluster.local.isolation.sandbox import sweep
from shoal.cluster.local.taskfiles import Exit, Launch, Started, Stop

__all__ = ["settle"]

_log = logging.getLogger(__name__)

_SCRATCH = "SHOAL_SCRATCH"
_SCRIPT = "/supervisor.py"
_PATIENCE_SECONDS = 1.0
_POLL_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.25


def settle(
    folder: str,
    cgroup_parents: Mapping[str, str] = {},
    report: Callable[[str], None] = _log.warning,
) -> Exit:
    """The supervisor of the task with this folder is gone: end what is left of the task, and say how it
    ended, in `exit.json` too unless the disk has no room for it. Returns when nothing is left, however
    long that takes: an instant, but for a process that the kernel itself holds. Idempotent.

    `cgroup_parents` and the folder's own name serve where `launch.json` is gone or damaged; `report` is
    given a sentence about each damaged file.

    A living supervisor would be taken for a part of what is left. Where there is no `begun` nothing has
    happened yet, and the task may as well be started again as settled.
    """
    launch = taskfiles.read(folder, taskfiles.LAUNCH, Launch, report)
    parents = cgroup_parents if launch is None else launch.cgroup_parents
    groups = cgroups.Groups(dict(parents), os.path.basename(folder))
    groups.find()
    _await_silence(folder, _scratch(folder) if launch is None else launch.env.get(_SCRATCH, ""))
    killed_for_memory, peak = groups.out_of_memory_kills(), groups.peak_memory_bytes()
    cpu_seconds = groups.cpu_seconds()
    while not cgroups.remove(groups.paths):
        continue  # it has its own patience
    if launch is not None and launch.isolation.sandbox:
        sweep(launch.isolation.sandbox)
    found = taskfiles.read(folder, taskfiles.EXIT, Exit, report)
    if found is not None:
        return found
    stop = taskfiles.read(folder, taskfiles.STOP, Stop, report)
    ended = outcome.classify(
        files.Status.read(folder),
        stop=None if stop is None else msgspec.to_builtins(stop),
        out_of_memory_kills=killed_for_memory,
        memory_bytes=None if launch is None else launch.limits.memory_bytes,
    )
    ended |= {"peak_memory_bytes": peak, "cpu_seconds": cpu_seconds, **_times(folder, report)}
    with contextlib.suppress(OSError):  # the caller has the answer
        files.ExitDraft(folder).publish(ended)
    return msgspec.convert(ended, Exit)


def _await_silence(folder: str, scratch: str) -> None:
    """Wait until none of the task's processes is left: a moment for the init to do it, then by force."""
    patience = time.monotonic() + _PATIENCE_SECONDS
    pause = _POLL_SECONDS
    while left := _left(folder, scratch):
        for pid in left if time.monotonic() > patience else ():
            processes.kill(pid)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _scratch(folder: str) -> str:
    """The task's scratch folder, as `folders.TaskFolders` has it."""
    node, name = Path(folder).parents[1], os.path.basename(folder)
    return str(node / "work" / name / "scratch")


def _left(folder: str, scratch: str) -> list[int]:
    """Processes of the supervisor's that still live: itself, its init; and, where no PID namespace held
    them, those that were started with the task's scratch folder in their environment."""
    own = processes.with_argument(folder, _SCRIPT)
    if own:
        return own
    strays = processes.with_environment(f"{_SCRATCH}={scratch}") if scratch else []
    for pid in strays:
        processes.kill(pid)  # no other process is left to do it
    return strays


def _times(folder: str, report: Callable[[str], None]) -> dict[str, float]:
    """When it was started, and when its end was noted, if it was."""
    started = taskfiles.read(folder, taskfiles.STARTED, Started, report)
    ended = time.time()
    if files.Status.read(folder) is not None:
        ended = os.stat(f"{folder}/status").st_mtime
    begun = 0.0 if started is None else started.started
    with contextlib.suppress(FileNotFoundError):
        begun = begun or os.stat(f"{folder}/begun").st_mtime
    return {"started": begun or ended, "ended": max(begun, ended)}
