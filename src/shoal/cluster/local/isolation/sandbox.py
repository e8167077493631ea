"""The network that the tasks of a strict job share on one machine, whichever agents they run under.

No process or mount holds it: it lives as long as one of the tasks does. Each supervisor has the
namespaces of its task open and notes in the sandbox's folder where; one that comes later enters those
of any that still lives, and only where none does makes new ones. The folder's lock makes that one step,
and goes, with the folder, with the last one out. A supervisor that was killed leaves a note of a process
that is gone (pid and start), which the next one removes.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import sys

from shoal.cluster.local import supervisor_processes as processes

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


class Sandbox:
    """One job's, on this machine."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = -1
        self._note = ""

    def lock(self) -> None:
        """Wait for another supervisor that looks for or makes namespaces at this moment."""
        while True:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            path = f"{self._folder}/lock"
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # the last one out has just removed it
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _same(descriptor, path):
                self._lock = descriptor
                return
            os.close(descriptor)

    def members(self) -> dict[str, int]:
        """The namespaces of a task that lives, as descriptors by kind; empty when none does. Locked."""
        for name in os.listdir(self._folder):
            pid, _, ticks = name.partition("-")
            if not ticks:
                continue
            path = f"{self._folder}/{name}"
            found = _opened(path, pid) if processes.alive(int(pid), int(ticks)) else None
            if found:
                return found
            os.unlink(path)
        return {}

    def join(self, namespaces: dict[str, int]) -> None:
        """Note that this process has these namespaces open. Locked."""
        pid = os.getpid()
        self._note = f"{self._folder}/{pid}-{processes.start_ticks(pid)}"
        descriptor = os.open(self._note, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            kept = (f"{kind} {namespaces[kind]}" for kind in ("user", "net") if kind in namespaces)
            os.write(descriptor, "\n".join(kept).encode())
        finally:
            os.close(descriptor)

    def unlock(self) -> None:
        """Let others look; idempotent."""
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # closing is not enough: the init has a copy
            os.close(self._lock)
            self._lock = -1

    def leave(self) -> None:
        """This task has ended, or never began. The last one removes the folder."""
        self.unlock()  # it may still be ours
        self.lock()
        try:
            if self._note:
                os.unlink(self._note)
                self._note = ""
            if not self.members():
                os.unlink(f"{self._folder}/lock")
                os.rmdir(self._folder)
        finally:
            self.unlock()


def sweep(folder: str) -> None:
    """Forget the tasks that were killed, and the folder if none is left."""
    if os.path.isdir(folder):
        Sandbox(folder).leave()


def loopback_up() -> None:
    """Make 127.0.0.1 and ::1 work in the network namespace of this process."""
    control = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    try:
        request = b"lo".ljust(16, b"\0") + _IFF_UP.to_bytes(2, sys.byteorder).ljust(24, b"\0")
        fcntl.ioctl(control.fileno(), _SIOCSIFFLAGS, request)
    finally:
        control.close()


def _same(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _opened(path: str, pid: str) -> dict[str, int]:
    """The namespaces that the process holds open, opened anew; empty when it has died since."""
    with open(path, encoding="ascii") as file:
        noted = dict(line.split() for line in file)
    found: dict[str, int] = {}
    try:
        for kind, descriptor in noted.items():
            found[kind] = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        for descriptor in found.values():
            os.close(descriptor)
        return {}
    return found
