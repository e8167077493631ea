"""What jobs have shown of their speed, by watching how far they are now and then.

Between two looks at a job of the same size its steps took as long as the time between them. What is
known of a size moves halfway to each new measurement, and a curve changes only once that has moved by a
tenth: a decision is not to turn on noise. Jobs of one application share what they have seen, for as long
as anybody remembers the application.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from shoal.objects.meta import Stamp
from shoal.schedule.speed.learned import Pace, learned, shared

__all__ = ["Look", "Watching"]

_LEAST_STEPS = 5
"""With fewer between two looks, what is measured is chance."""
_MOVED = 0.1
_MOST_APPLICATIONS = 1000

Curve = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Look:
    """How far a job was."""

    at: Stamp
    tasks: int
    step: int
    turn: Hashable = None
    """What is not the same any more once its steps were disturbed: attempts, recoveries."""


@dataclass
class _Paces:
    """By tasks: seconds of a step as last measured, and as they were shown."""

    measured: dict[int, float] = field(default_factory=dict[int, float])
    shown: dict[int, float] = field(default_factory=dict[int, float])

    def take(self, tasks: int, seconds: float) -> None:
        before = self.measured.get(tasks)
        now = seconds if before is None else (before + seconds) / 2
        self.measured[tasks] = now
        shown = self.shown.get(tasks)
        if shown is None or abs(now - shown) > _MOVED * shown:
            self.shown[tasks] = now

    def all(self) -> list[Pace]:
        return [Pace(tasks=tasks, seconds=self.shown[tasks]) for tasks in sorted(self.shown)]


class Watching:
    """Of all jobs of a cluster. Mutable; what it says follows from what it saw, in that order."""

    def __init__(self) -> None:
        self._last: dict[str, Look] = {}
        self._own: dict[str, _Paces] = {}
        self._shared: dict[str, _Paces] = {}

    def saw(self, job: str, look: Look, application: str = "") -> None:
        """A look at a job; looks in the order of time. An empty application is shared with nobody."""
        before = self._last.get(job)
        goes_on = before is not None and (before.tasks, before.turn) == (look.tasks, look.turn)
        if before is None or not goes_on or look.tasks < 1:
            self._last[job] = look
            return
        steps, seconds = look.step - before.step, look.at - before.at
        if steps < _LEAST_STEPS or seconds <= 0:
            return
        self._last[job] = look
        self._own.setdefault(job, _Paces()).take(look.tasks, seconds / steps)
        if application:
            paces = self._shared.pop(application, _Paces())
            paces.take(look.tasks, seconds / steps)
            self._shared[application] = paces  # last: the one that was heard of most lately
            if len(self._shared) > _MOST_APPLICATIONS:
                del self._shared[next(iter(self._shared))]

    def curve(self, job: str, most: int, application: str = "") -> Curve:
        """Steps per second with 1, 2, ... tasks, at most `most`; empty: nobody has seen anything."""
        own, others = self._own.get(job), self._shared.get(application)
        seen = own.all() if own is not None else []
        return learned(shared(seen, others.all() if others is not None else []), most)

    def forget(self, job: str) -> None:
        """It is gone. What its application has seen stays."""
        self._last.pop(job, None)
        self._own.pop(job, None)
