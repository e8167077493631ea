"""Holds a task to its memory limit where no control group does: by looking, a few times a second.

A task that takes memory faster than that is over its limit for that long, which is why this is not
called enforcement. What its processes share (a data loader's tensors) counts once.
"""

from __future__ import annotations

from shoal.cluster.local import supervisor_processes as processes

__all__ = ["MemoryWatch"]

_INTERVAL_SECONDS = 0.2


class MemoryWatch:
    """The memory of everything below a process; idle when there is no limit to hold."""

    def __init__(self, limit_bytes: int | None, ancestor: int) -> None:
        self._limit_bytes = limit_bytes
        self._ancestor = ancestor
        self.next_at: float | None = None if limit_bytes is None else 0.0
        """When (monotonic) to look again; None: never."""
        self.peak_bytes = 0
        self.exceeded = False

    def look(self, now: float) -> bool:
        """True when the task is to be killed for its memory; looks only when it is time."""
        if self._limit_bytes is None or self.next_at is None or now < self.next_at:
            return False
        self.next_at = now + _INTERVAL_SECONDS
        used = processes.memory_bytes(processes.descendants(self._ancestor))
        self.peak_bytes = max(self.peak_bytes, used)
        if used <= self._limit_bytes:
            return False
        self.exceeded = True
        return True
