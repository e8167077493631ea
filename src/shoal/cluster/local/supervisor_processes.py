"""Processes as /proc shows them: parent, start, memory.

A process is named by its pid and its start (in clock ticks since the machine's), for a pid alone may
have gone to another. Where there is no /proc nothing is found, and nothing raises.
"""

from __future__ import annotations

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SIGKILL = 9


def start_ticks(pid: int) -> int:
    """When it started; 0 when there is no such process, or it is only waiting to be reaped."""
    fields = stat(pid)
    return 0 if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def alive(pid: int, ticks: int) -> bool:
    """True while the process that was started then runs."""
    return ticks > 0 and start_ticks(pid) == ticks


def descendants(ancestor: int) -> list[int]:
    """Every process below that one, parents first. A snapshot: some may be gone, some new."""
    known = table()
    return [pid for pid in below(ancestor, known) if known[pid][0] not in ("Z", "X")]


def table() -> dict[int, list[str]]:
    """`stat` of every process, by pid."""
    return {pid: fields for pid in _pids() if (fields := stat(pid)) is not None}


def below(ancestor: int, known: dict[int, list[str]]) -> list[int]:
    """The descendants of a process in a `table`, parents first; those that wait to be reaped too."""
    children: dict[int, list[int]] = {}
    for pid, fields in known.items():
        children.setdefault(int(fields[1]), []).append(pid)
    found = list(children.get(ancestor, ()))
    for pid in found:  # grows while it is walked
        found += children.get(pid, ())
    return found


def with_argument(argument: str, script: str) -> list[int]:
    """Processes that run this script (the end of its path) with this argument."""
    return [pid for pid in _pids() if argument_of(pid, script) == argument]


def argument_of(pid: int, *scripts: str) -> str | None:
    """The first argument, options aside, of the script that the process runs, if it is one of these (by
    the end of its path)."""
    words = command_line(pid)
    for place, word in enumerate(words[1:5], 2):
        if word.endswith(scripts):
            return next((word for word in words[place:] if not word.startswith("-")), None)
    return None


def command_line(pid: int) -> list[str]:
    """The words that the process was started with; none when it is gone."""
    return [os.fsdecode(word) for word in _contents(f"/proc/{pid}/cmdline").split(b"\0")[:-1]]


def parent(pid: int) -> int:
    """Its parent; 0 when it is not there."""
    fields = stat(pid)
    return 0 if fields is None else int(fields[1])


def with_environment(entry: str) -> list[int]:
    """Processes that were started with `NAME=value` in their environment, as far as we may look."""
    wanted = os.fsencode(entry)
    return [pid for pid in _pids() if wanted in _contents(f"/proc/{pid}/environ").split(b"\0")]


def memory_bytes(pids: list[int]) -> int:
    """Memory of these processes together: what each has for itself, and the largest shared part once."""
    private = shared = 0
    for pid in pids:
        fields = _contents(f"/proc/{pid}/statm").split()
        if len(fields) >= 3:
            private += int(fields[1]) - int(fields[2])
            shared = max(shared, _shared_memory_bytes(pid))
    return private * _PAGE_BYTES + shared


def kill(pid: int, number: int = _SIGKILL) -> bool:
    """Send a signal; False when it is not there, or not ours to kill."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def reap() -> bool:
    """Collect the children that have ended; True while there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def stat(pid: int) -> list[str] | None:
    """State, parent and what follows of /proc/PID/stat: the fields behind the name, which may hold
    anything; None when the process is gone."""
    text = _contents(f"/proc/{pid}/stat").decode("ascii", "replace")
    return text[text.rindex(")") + 2 :].split() if ")" in text else None


def _shared_memory_bytes(pid: int) -> int:
    for line in _contents(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"RssShmem:"):
            return int(line.split()[1]) * 1024
    return 0


def _contents(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = [os.read(descriptor, 1 << 16)]
        while parts[-1]:
            parts.append(os.read(descriptor, 1 << 16))
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
