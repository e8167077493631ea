"""Threads that call torch, and are awaited before the interpreter ends.

A daemon thread that comes back from torch while the interpreter goes down is ended inside C++ code that
cannot be unwound: the whole process dies of SIGABRT, with all its work done.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["start"]

_END_SECONDS = 5.0

_started: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start(target: Callable[..., object], name: str, *args: Any) -> threading.Thread:
    """A daemon thread that runs. What it waits for must have ended by the end of the process."""
    thread = threading.Thread(target=target, name=name, args=args, daemon=True)
    _started.add(thread)
    thread.start()
    return thread


def _await_all() -> None:
    deadline = time.monotonic() + _END_SECONDS
    for thread in list(_started):
        thread.join(max(0.0, deadline - time.monotonic()))


# what is registered later, and ends what threads wait for, is called before this
atexit.register(_await_all)
