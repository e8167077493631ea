"""How a worker with a notice ends: soon, since another task waits for its slot.

Taking an interpreter with torch in it to pieces costs most of a second of processor time, and frees
nothing that the end of the process does not. So once everything that is to be done at the end has been
done (`finally`, `with`, what `atexit` knows, what is buffered), the process just ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn

__all__ = ["leave"]

TASK = "SHOAL_JOB"
"""A variable that only tasks of a platform have: elsewhere no scheduler waits for the slot."""
_began = False


def leave() -> NoReturn:
    """End this process, its exit code 0.

    Raises:
        SystemExit: always, for the script to end as usual up to its last line.
    """
    if TASK in os.environ and threading.current_thread() is threading.main_thread():
        atexit.register(_at_once)  # the last to be registered is the first to be called
    raise SystemExit(0)


def _at_once() -> None:
    global _began
    if _began:
        return
    _began = True
    try:
        # private, and the only way to have all of it done first, each once
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
    finally:
        os._exit(0)
