"""The end of a turn of the agent's loop: commit once, notify watchers, then do what follows.

Nothing is seen or done that a crash could make untrue, for it happens after the commit that says so;
and many requests that come together cost one flush of the disk. If the commit fails, nothing of the
turn has happened: what was to follow is dropped, and the waiting callers get the error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shoal.cluster.local.ledger import Ledger
from shoal.objects.errors import Unavailable
from shoal.objects.task import TaskKey

__all__ = ["Turn"]


class Turn:
    """See the module's docstring. `tell` is given the tasks that changed, with True for those that
    are new; `undone` is called when memory went back to what the disk has. Belongs to the loop's
    thread."""

    def __init__(
        self,
        ledger: Ledger,
        tell: Callable[[dict[TaskKey, bool]], None],
        undone: Callable[[Unavailable], None],
    ) -> None:
        self._ledger = ledger
        self._tell = tell
        self._undone = undone
        self._changed: dict[TaskKey, bool] = {}
        self._after: deque[Callable[[], None]] = deque()
        self._otherwise: list[Callable[[Unavailable], None]] = []

    def after(self, effect: Callable[[], None]) -> None:
        """Do this once everything so far is durable, in the order of asking."""
        self._after.append(effect)

    def otherwise(self, fail: Callable[[Unavailable], None]) -> None:
        """Do this instead of what follows in this turn, if the commit fails."""
        self._otherwise.append(fail)

    def changed(self, key: TaskKey, *, new: bool = False) -> None:
        """Notify watchers of the task's state at the end of the turn."""
        self._changed[key] = new or self._changed.get(key, False)

    def end(self) -> None:
        """Commit, notify, and do what follows; again while that changes something."""
        while self._ledger.staged or self._after or self._changed:
            try:
                self._ledger.commit()
            except Unavailable as error:
                self._undo(error)
                continue
            self._otherwise.clear()
            changed, self._changed = self._changed, {}
            if changed:
                self._tell(changed)
            effects, self._after = self._after, deque()
            for effect in effects:
                effect()

    def _undo(self, error: Unavailable) -> None:
        otherwise, self._otherwise = self._otherwise, []
        self._after.clear()
        self._changed.clear()
        self._undone(error)
        for fail in otherwise:
            fail(error)
