"""Processes by pid, safely: a pid means nothing without the moment at which its process began.

Where the kernel has pidfds (Linux) a signal goes to the process that was looked at and to no other;
elsewhere the start time is checked right before.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from pathlib import Path

from shoal.cluster.local.supervisor_processes import alive as alive
from shoal.cluster.local.supervisor_processes import command_line as command_line
from shoal.cluster.local.supervisor_processes import stat

_COMPONENTS = ("shoal.server", "shoal.cluster.local.agent")
_FILES = 65_536
_SUPERVISOR = "/shoal/cluster/local/supervisor.py"

SPAWNING = threading.Lock()
"""Held while descriptors are inheritable and a child is spawned, by every thread that spawns: a child
that keeps a copy of what was meant for another holds locks and pipes that never end."""


def close_inherited_on_exec() -> None:
    """Keep what this process inherited, beyond its standard streams, from every process that it starts:
    a server or an agent that a shell started may have any of the shell's files open."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        folder = Path("/dev/fd")
    for descriptor in [int(name.name) for name in folder.iterdir()]:
        if descriptor > 2:
            with contextlib.suppress(OSError):  # the one with which the folder was read
                os.set_inheritable(descriptor, False)


def raise_file_limit() -> None:
    """Let this process have many descriptors: tasks, clients, streams and logs take some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def start_ticks(pid: int) -> int:
    """When the process began, in clock ticks since boot, also of a zombie; 0 when it is gone."""
    fields = stat(pid)
    return int(fields[19]) if fields else 0


def open_process(pid: int) -> int:
    """A descriptor that becomes readable when the process ends; -1 where there is no such thing.

    Raises:
        ProcessLookupError: it is gone.
    """
    if not hasattr(os, "pidfd_open"):
        return -1
    return os.pidfd_open(pid)


def send(pid: int, ticks: int, number: signal.Signals) -> bool:
    """Signal the process of that pid and start; False when it is gone."""
    if pid <= 0:
        return False
    try:
        if not hasattr(os, "pidfd_open"):
            if not alive(pid, ticks):
                return False
            os.kill(pid, number)
            return True
        descriptor = os.pidfd_open(pid)
        try:
            if not alive(pid, ticks):
                return False
            signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
    except ProcessLookupError:
        return False
    return True


def kill(pid: int) -> None:
    """Kill a process that was found just now; nothing happens for 0 or one that is gone."""
    send(pid, start_ticks(pid), signal.SIGKILL)


def of_home(home: str) -> list[int]:
    """Servers, agents and supervisors that were started for the home of this path, other than this
    process; of a home that was removed too. Not those that see other files by that path."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        words = command_line(pid) if pid != os.getpid() and _sees_our_files(folder) else []
        for at, word in enumerate(words[:-1]):
            component = word == "--home" and words[at + 1] == home
            task = word.endswith(_SUPERVISOR) and words[at + 1].startswith(f"{home}/nodes/")
            if task or (component and any(module in words[:at] for module in _COMPONENTS)):
                found.append(pid)
                break
    return found


def _sees_our_files(folder: Path) -> bool:
    try:
        return (folder / "ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False
