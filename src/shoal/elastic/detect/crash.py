"""How a worker ended: kept in the memory that it shares with its sidecar, which reads it afterwards.

Three things follow the numbers of `progress` there:
- the report of a crash in C code, written by the interpreter's handler of fatal signals;
- the outcome: the last message to the coordinator, which may be lost with the worker's own connection;
- the exit status. Python code cannot learn it (`raise SystemExit(3)` ends the interpreter before any
  `atexit` function runs), so the C library writes it: `fputc(status, file)`, called by `exit`.

After an end from outside (SIGKILL) none of them is there.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import sys
from typing import Any

__all__ = ["ignore", "ignore_exit", "keep_outcome", "kept", "report", "summary", "watch", "watch_exit"]

_OFFSET = 4096
_MOST = 16384
_OUTCOME = _OFFSET + _MOST
_STATUS = _OUTCOME + 8192
_UNBUFFERED = 2
_exit_file: list[int] = []
"""The descriptor behind the file that `exit` writes to, once it is open."""


def watch(descriptor: int) -> bool:
    """Have crashes of this process reported behind `descriptor`; False if the script has installed a
    handler of its own."""
    from_the_start = "PYTHONFAULTHANDLER" in os.environ or sys.flags.dev_mode
    if faulthandler.is_enabled() and not from_the_start:
        return False
    os.lseek(descriptor, _OFFSET, os.SEEK_SET)
    faulthandler.enable(file=descriptor, all_threads=False)
    # a crash of a forked child (a data loader) is not this process's
    os.register_at_fork(after_in_child=ignore)
    return True


def ignore() -> None:
    """Before the descriptor is closed."""
    faulthandler.disable()


def watch_exit(descriptor: int) -> bool:
    """Have the exit status of this process written; False where the C library cannot do that."""
    if not _exit_file and not _open_exit_file():
        return False
    # opened anew: the descriptor's position belongs to the crash handler
    own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_CLOEXEC)
    os.lseek(own, _STATUS, os.SEEK_SET)
    os.dup2(own, _exit_file[0], inheritable=False)
    os.close(own)
    return True


def ignore_exit() -> None:
    """The exit status of this process is of no interest any more."""
    for target in _exit_file:
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nothing, target, inheritable=False)
        os.close(nothing)


def _open_exit_file() -> bool:
    if sys.platform != "linux":
        return False
    import ctypes  # the sidecar has no need of it

    library = ctypes.CDLL(None)
    if not hasattr(library, "on_exit"):
        return False
    library.fdopen.restype = ctypes.c_void_p
    descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    file = ctypes.c_void_p(library.fdopen(descriptor, b"w"))
    library.setvbuf(file, None, _UNBUFFERED, ctypes.c_size_t(0))
    library.on_exit(ctypes.cast(library.fputc, ctypes.c_void_p), file)
    _exit_file.append(descriptor)
    # the exit status of a forked child is not this process's
    os.register_at_fork(after_in_child=ignore_exit)
    return True


def keep_outcome(descriptor: int, message: dict[str, Any]) -> None:
    """Keep the last message of this process, for its sidecar to send."""
    os.pwrite(descriptor, json.dumps(message).encode(), _OUTCOME)


def kept(descriptor: int) -> dict[str, Any] | None:
    """The outcome that the process kept, corrected by its exit status; None: it kept none."""
    text = os.pread(descriptor, _STATUS - _OUTCOME, _OUTCOME).rstrip(b"\0")
    if not text:
        return None
    outcome: dict[str, Any] = json.loads(text)
    status = os.pread(descriptor, 1, _STATUS)
    if outcome["type"] == "done" and status not in (b"", b"\0"):
        step, error = outcome["step"], f"it ended with exit code {status[0]}"
        return {"type": "failed", "step": step, "samples": [], "epoch_of_data": 0, "error": error}
    return outcome


def report(descriptor: int) -> str:
    """The report of a crash; empty if there was none."""
    return os.pread(descriptor, _MOST, _OFFSET).rstrip(b"\0").decode(errors="replace")


def summary(words: str) -> str:
    """In one line: which signal, and where in the script."""
    fatal = re.search(r"^Fatal Python error: (.+)$", words, re.MULTILINE)
    where = re.search(r'^  File "(.+)", line (\d+) in (.+)$', words, re.MULTILINE)
    what = fatal[1] if fatal else "a fatal signal"
    return f"{what}, in {where[3]} ({where[1]}:{where[2]})" if where else what
