"""When a task that is asked to end is made to end. Knows the time only as a parameter.

`stop.json` says why and after which grace; SIGTERM to the supervisor says to read it, and without the
file means nothing. The grace is measured from when it is read. Reading it again may shorten what is
left of the grace, never lengthen it.
"""

from __future__ import annotations

from shoal.cluster.local import supervisor_files as files

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from typing import Any, Literal

__all__ = ["Stopping"]

_LAST_RESORT_SECONDS = 2.0


class Stopping:
    """The stop of one task, if there is one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.stop: dict[str, Any] | None = None
        self.next_at: float | None = None
        """When (monotonic) the next step is due; None: there is none."""
        self.grace_over = False

    def read(self) -> bool:
        """Read what is asked for; True when there is a stop."""
        self.stop = files.read(self._folder, "stop.json") or self.stop
        return self.stop is not None

    def heard(self, now: float) -> Literal["", "term", "kill", "destroy"]:
        """SIGTERM has come: what to send to the task."""
        first = self.stop is None
        if not self.read() or self.stop is None or self.grace_over:
            return ""
        grace_seconds = max(0.0, float(self.stop["grace_seconds"]))
        self.next_at = min(now + grace_seconds, self.next_at or now + grace_seconds)
        if self.next_at <= now:
            return self.due(now)
        return "term" if first else ""

    def due(self, now: float) -> Literal["", "kill", "destroy"]:
        """What to send because it is time: `kill` through the init, at last `destroy` the init."""
        if self.next_at is None or now < self.next_at:
            return ""
        self.next_at = now + _LAST_RESORT_SECONDS
        if self.grace_over:
            return "destroy"
        self.grace_over = True
        return "kill"
