"""How many processors a task asks for when nobody said: as much as lets all of them run at once."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["cpu_share", "local_cores_millis"]

_WHOLE = 1000
_KEPT_BACK = 100
"""Thousandths of a core per node that stay free, for the coordinator of an elastic job."""


def cpu_share(node_millis: Sequence[int], at_once: int) -> int:
    """Thousandths of a core for each of `at_once` tasks on nodes of these sizes: at most one core, and
    on one node min(1, (cores - 0.1) / tasks). Always at least 1."""
    room = [millis - _KEPT_BACK for millis in node_millis if millis > _KEPT_BACK]
    shares = {_WHOLE, *(size // tasks for size in room for tasks in range(1, at_once + 1))}
    for share in sorted((s for s in shares if 0 < s <= _WHOLE), reverse=True):
        if sum(size // share for size in room) >= at_once:
            return share
    return 1


def local_cores_millis() -> int:
    """Thousandths of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) * 1000
    return (os.cpu_count() or 1) * 1000
