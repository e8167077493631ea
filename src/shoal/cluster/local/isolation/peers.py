"""Distinguishes the tasks' processes from the owner's, which have the same user id.

Every process of a task, whatever it does, is below the task's supervisor: orphans are handed to the
init, or where there is none to the supervisor itself, and neither is outlived by them. What `shoal exec`
runs is below `enter`. So a walk up from the pid that the kernel gives for the other end of a socket is
enough. The pid must be asked for right after accepting, while its process is known to be there.
"""

from __future__ import annotations

from shoal.cluster.local import supervisor_processes as processes

__all__ = ["task_folder"]

_SCRIPTS = ("/cluster/local/supervisor.py", "/cluster/local/isolation/enter.py")
_MOST_ANCESTORS = 10_000


def task_folder(pid: int) -> str | None:
    """The folder (`launch`) of the task that the process belongs to; None when it is no task's."""
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            return None
        folder = processes.argument_of(pid, *_SCRIPTS)
        if folder is not None:
            return folder
        pid = processes.parent(pid)
    return None
