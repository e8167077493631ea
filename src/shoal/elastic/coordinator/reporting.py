"""How the job is doing, in numbers that people and the scheduler read."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Any

from shoal.elastic.coordinator import events
from shoal.elastic.coordinator.state import State

__all__ = ["Telemetry"]

_STEPS = 256
_RECOVERIES = 16
_CHANGES = 64


class Telemetry:
    """What is measured between reports. Not thread-safe."""

    def __init__(self) -> None:
        self._step_seconds: deque[float] = deque(maxlen=_STEPS)
        self._began: tuple[float, int] | None = None
        self._worlds: deque[tuple[float, int]] = deque(maxlen=_CHANGES)
        self._origin: float | None = None

    def heard(self, progress: events.Report, now: float) -> None:
        """A member has said how fast it steps."""
        if progress.step_seconds > 0:
            self._step_seconds.append(progress.step_seconds)
        if self._began is None:
            self._began = now, progress.step

    def report(self, state: State, now: float, message: str) -> dict[str, Any]:
        """What to send. `goodput`: committed steps times the median step time, over the time since the
        first word of progress; `worldOverTime`: pairs of seconds since the start and size."""
        record = state.record
        world = record.view.size if record.view is not None and state.paused is None else 0
        self._origin = self._origin if self._origin is not None else now
        if not self._worlds or self._worlds[-1][1] != world:
            self._worlds.append((round(now - self._origin, 3), world))
        median = statistics.median(self._step_seconds) if self._step_seconds else 0.0
        return {
            "world": world,
            "epoch": record.epoch,
            "step": record.step,
            "goodput": self._goodput(record.step, median, now),
            "stepSeconds": round(median, 6),
            "lostSteps": state.lost_steps,
            "worldOverTime": [list(each) for each in self._worlds],
            "recoveries": [
                {
                    "epoch": each.epoch,
                    "world": each.world,
                    "seconds": round(each.seconds, 6),
                    "decidedSeconds": round(each.published_at - each.began_at, 6),
                    "how": each.how,
                    "lostSteps": each.lost_steps,
                    "lost": list(each.reasons),
                }
                for each in state.recoveries[-_RECOVERIES:]
                if each.seconds is not None
            ],
            "state": _state(state),
            "message": message,
        }

    def _goodput(self, step: int, median: float, now: float) -> float | None:
        if self._began is None or now <= self._began[0] or not median:
            return None
        began, first = self._began
        return round(max(step - first, 0) * median / (now - began), 4)


def _state(state: State) -> str:
    record = state.record
    if record.ended is not None:
        return "failed" if record.ended.failed else "ended"
    if state.paused is not None:
        return "paused"
    return "running" if record.view is not None else "waiting"
