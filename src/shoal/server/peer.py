"""The process at the other end of a unix socket, and whether it is a process of a task.

The kernel says pid and uid (SO_PEERCRED); tasks run under the owner's uid, so that is not enough. A
process is a task's when one of these is so:

1. it lives in another PID namespace than the server (isolated tasks do, and so does whatever they
   start, however it hides);
2. it is in a control group of a task;
3. a supervisor or an agent is among its ancestors. Both are subreapers, so a task's daemons stay
   below them.

A pid may be reused while one looks: where the kernel gives a pidfd of the peer (Linux 6.5), what was
read counts only if that very process is still there afterwards. Whatever cannot be read is refused.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")
_SO_PEERPIDFD = 77
_MOST_ANCESTORS = 200
_TASK_GROUP = re.compile(r"/shoal-[0-9a-f]{8}-[^/]+/([^/\n]+)")
"""A group below the parent that an agent makes for its node's tasks."""
_JOB_OF_TASK = re.compile(r".*?-[0-9a-f]{8}(?=-)")
"""The part of `NAMESPACE.JOB-UID-ROLE-INDEX-INCARNATION` that all tasks of a job share."""
_AGENT = "shoal.cluster.local.agent"
_SUPERVISOR = "/shoal/cluster/local/supervisor.py"


@dataclass(frozen=True)
class Peer:
    """A process as it was when it connected. `pid` is 0 where this process cannot see it."""

    pid: int
    uid: int
    job: str = ""
    """Of a task's process: what the names of its job's tasks begin with; empty where it is not known."""
    evidence: str = ""
    """Why it counts as a task's; empty: it does not."""


class Processes:
    """Processes as /proc shows them. `root` is another folder in tests."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = Path(root)

    def space(self, pid: int | str) -> str:
        """The PID namespace of a process (`self` is this one).

        Raises:
            OSError: it is gone, or may not be looked at.
        """
        return str((self._root / str(pid) / "ns" / "pid").readlink())

    def groups(self, pid: int) -> str:
        """Its control groups.

        Raises:
            OSError: it is gone.
        """
        return (self._root / str(pid) / "cgroup").read_text()

    def parent(self, pid: int) -> int:
        """Its parent's pid, 0 for the first process.

        Raises:
            OSError: it is gone.
        """
        text = (self._root / str(pid) / "stat").read_text(errors="replace")
        return int(text[text.rfind(")") + 2 :].split()[1])

    def command(self, pid: int) -> list[str]:
        """The words of its command line.

        Raises:
            OSError: it is gone.
        """
        text = (self._root / str(pid) / "cmdline").read_bytes()
        return [os.fsdecode(word) for word in text.split(b"\0")[:-1]]


def peer_of(connection: socket.socket, processes: Processes | None = None) -> Peer:
    """The process that connected.

    Raises:
        OSError: the kernel does not say.
    """
    if not hasattr(socket, "SO_PEERCRED"):  # macOS: no isolation there, the socket's mode must do
        return Peer(pid=0, uid=os.getuid())
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    looked = processes or Processes()
    pidfd = _pidfd(connection)
    try:
        job, evidence = task_evidence(pid, looked)
        if pidfd is not None and not _is_there(pidfd):
            evidence = evidence or "the calling process has ended"
    finally:
        if pidfd is not None:
            os.close(pidfd)
    return Peer(pid=pid, uid=uid, job=job, evidence=evidence)


def task_evidence(pid: int, processes: Processes) -> tuple[str, str]:
    """The job of a task's process, and why it counts as a task's (empty: it does not)."""
    if pid <= 0:
        return "", "the calling process is outside the server's PID namespace"
    try:
        group = _TASK_GROUP.search(processes.groups(pid))
        apart = processes.space(pid) != processes.space("self")
        task, evidence = (group[1], "") if group else _ancestry(pid, processes)
    except OSError:
        return "", "the calling process has ended, or cannot be looked at"
    if apart:
        evidence = "the calling process is in a PID namespace of its own, as tasks are"
    elif group:
        evidence = "the calling process is in a task's control group"
    named = _JOB_OF_TASK.match(task)
    return named[0] if named else task, evidence


def _ancestry(pid: int, processes: Processes) -> tuple[str, str]:
    """The task that has an ancestor as its supervisor, and the evidence that there is one."""
    for _ in range(_MOST_ANCESTORS):
        pid = processes.parent(pid)
        if pid <= 1:
            return "", ""
        command = processes.command(pid)
        if _runs_tasks(command):
            folder = next((b for a, b in pairwise(command) if a.endswith(_SUPERVISOR)), "")
            return folder.rpartition("/")[2], "the calling process was started by a task"
    return "", "the calling process has more ancestors than can be followed"


def _runs_tasks(command: list[str]) -> bool:
    """Whether this is an agent (`python ... -m MODULE`) or a supervisor (`python ... SCRIPT`)."""
    return any(
        (word == _AGENT and before == "-m") or (word.endswith(_SUPERVISOR) and " " not in word)
        for before, word in pairwise(command)
    )


def _pidfd(connection: socket.socket) -> int | None:
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
    except OSError:
        return None  # an older kernel, or the process is gone already (its files in /proc are too)
    return struct.unpack("i", raw)[0]


def _is_there(pidfd: int) -> bool:
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1]) > 0
    return True
