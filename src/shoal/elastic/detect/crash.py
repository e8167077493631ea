"""What a process says as it crashes in C code: kept where its sidecar reads it once the process is gone.

The interpreter's own handler of fatal signals writes into the memory that both share, behind the numbers
of `progress`: a file of it has a position, so nothing is overwritten and nothing has to be allocated.
Nothing is kept of an end from outside (SIGKILL), which is no fault of the process.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys

__all__ = ["ignore", "report", "summary", "watch"]

_OFFSET = 4096
_MOST = 16384


def watch(descriptor: int) -> bool:
    """Have the last words of this process written behind `descriptor`; False if the script has set up
    something else for them."""
    from_the_start = "PYTHONFAULTHANDLER" in os.environ or sys.flags.dev_mode
    if faulthandler.is_enabled() and not from_the_start:
        return False
    os.lseek(descriptor, _OFFSET, os.SEEK_SET)
    faulthandler.enable(file=descriptor, all_threads=False)
    # a forked child's (a data loader's) last words are not this process's
    os.register_at_fork(after_in_child=ignore)
    return True


def ignore() -> None:
    """Before the descriptor is closed."""
    faulthandler.disable()


def report(descriptor: int) -> str:
    """The last words; empty if there were none."""
    return os.pread(descriptor, _MOST, _OFFSET).decode(errors="replace")


def summary(words: str) -> str:
    """In one line: which signal, and where in the script."""
    fatal = re.search(r"^Fatal Python error: (.+)$", words, re.MULTILINE)
    where = re.search(r'^  File "(.+)", line (\d+) in (.+)$', words, re.MULTILINE)
    what = fatal[1] if fatal else "a fatal signal"
    return f"{what}, in {where[3]} ({where[1]}:{where[2]})" if where else what
