"""The worker as its sidecar sees it: there or gone, running or stopped.

Its end comes as an event where the system has process descriptors (Linux 5.3), and is otherwise seen
when one looks: an orphan has another parent. Whether it is stopped is in /proc; where there is no /proc
no process is ever seen to be stopped.
"""

from __future__ import annotations

import os
import select

__all__ = ["Watched"]


class Watched:
    """The parent of this process. A pid that has gone to another process is never taken for it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.descriptor: int | None = None
        """Becomes readable when it has ended; None where one must look."""
        self._stat: int | None = None
        try:
            if hasattr(os, "pidfd_open"):
                self.descriptor = os.pidfd_open(pid)
            self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass  # gone already, or a system that has neither: `gone` looks at the parent

    @property
    def gone(self) -> bool:
        """It has ended, whether or not anybody has reaped it."""
        if os.getppid() != self._pid:
            return True
        if self.descriptor is None:
            return False
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def stopped(self) -> bool:
        """It is stopped by a signal or a debugger."""
        if self._stat is None:
            return False
        try:
            text = os.pread(self._stat, 512, 0)
        except OSError:  # it has just ended
            return False
        # the name, in parentheses, may hold anything, closing parentheses included
        return text[text.rfind(b")") + 2 : text.rfind(b")") + 3] in (b"T", b"t")

    def kill(self) -> None:
        """End it, in a way that it cannot refuse. Nothing when it is gone."""
        if not self.gone:
            os.kill(self._pid, 9)
