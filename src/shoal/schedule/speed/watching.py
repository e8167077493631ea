"""What jobs have shown of their speed, by watching how far they are now and then.

Between two looks at a job of the same size its steps took as long as the time between them. What is
known of a size moves halfway to each new measurement, and a curve changes only once that has moved by a
tenth: a decision is not to turn on noise. Jobs of one application share what they have seen, for as long
as anybody remembers the application.

That more tasks are of no use is believed once it was seen for a minute, and then for twenty times as
long as it was seen: who was disturbed there, or has changed since, gets to try again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from shoal.objects.meta import Stamp
from shoal.schedule.speed.learned import Pace, hopeful, learned, shared

__all__ = ["Look", "Watching"]

_LEAST_STEPS = 5
"""With fewer between two looks, what is measured is chance."""
_MOVED = 0.1
_LONG_ENOUGH_SECONDS = 60.0
_BELIEVED = 20.0
"""So many times as long as it was seen."""
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
class _Size:
    """What was seen of steps with so many tasks."""

    measured: float
    """Seconds of a step, and"""
    shown: float
    """as it was told to others."""
    seen: float
    """For so many seconds, until"""
    last: Stamp

    def is_believed(self, now: Stamp) -> bool:
        return self.seen >= _LONG_ENOUGH_SECONDS and now - self.last <= _BELIEVED * self.seen


class _Paces:
    """Of one job, or application."""

    def __init__(self) -> None:
        self._sizes: dict[int, _Size] = {}

    def take(self, tasks: int, step: float, seen: float, at: Stamp) -> None:
        """A step took so long, for so long, until then."""
        size = self._sizes.setdefault(tasks, _Size(step, step, 0.0, at))
        size.measured = (size.measured + step) / 2
        size.seen += seen
        size.last = at
        if abs(size.measured - size.shown) > _MOVED * size.shown:
            size.shown = size.measured

    def all(self) -> list[Pace]:
        return [Pace(tasks=tasks, seconds=self._sizes[tasks].shown) for tasks in sorted(self._sizes)]

    def sure(self, now: Stamp) -> int:
        sizes = self._sizes.items()
        return max((tasks for tasks, size in sizes if size.is_believed(now)), default=0)


class Watching:
    """Of all jobs of a cluster. Mutable; what it says follows from what it saw, in that order."""

    def __init__(self) -> None:
        self._last: dict[str, Look] = {}
        self._own: dict[str, _Paces] = {}
        self._shared: dict[str, _Paces] = {}
        self._now: Stamp = 0.0

    def saw(self, job: str, look: Look, application: str = "") -> None:
        """A look at a job; looks in the order of time. An empty application is shared with nobody."""
        self._now = max(self._now, look.at)
        before = self._last.get(job)
        goes_on = before is not None and (before.tasks, before.turn) == (look.tasks, look.turn)
        if before is None or not goes_on or look.tasks < 1:
            self._last[job] = look
            return
        steps, seconds = look.step - before.step, look.at - before.at
        if steps < _LEAST_STEPS or seconds <= 0:
            return
        self._last[job] = look
        step = seconds / steps
        self._own.setdefault(job, _Paces()).take(look.tasks, step, seconds, look.at)
        if application:
            paces = self._shared.pop(application, _Paces())
            paces.take(look.tasks, step, seconds, look.at)
            self._shared[application] = paces  # last: the one that was heard of most lately
            if len(self._shared) > _MOST_APPLICATIONS:
                del self._shared[next(iter(self._shared))]

    def curve(self, job: str, most: int, application: str = "") -> Curve:
        """Steps per second with 1, 2, ... tasks, at most `most`; empty: nobody has seen anything."""
        own, others = self._own.get(job, _Paces()), self._shared.get(application, _Paces())
        paces = shared(own.all(), others.all())
        if not paces:
            return ()
        least = min(pace.tasks for pace in paces)
        return hopeful(learned(paces, most), least, self.sure(job, application))

    def sure(self, job: str, application: str = "") -> int:
        """Up to so many tasks it is believed that more are of no use."""
        known = (self._own.get(job), self._shared.get(application))
        return max((each.sure(self._now) for each in known if each is not None), default=0)

    def forget(self, job: str) -> None:
        """It is gone. What its application has seen stays."""
        self._last.pop(job, None)
        self._own.pop(job, None)
