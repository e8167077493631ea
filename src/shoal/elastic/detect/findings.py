"""What a sidecar concludes from what it sees of its worker: pure, with the time as input,
level-triggered.

`Findings` is a state, not a queue: what was found and still holds is said again on every new connection
(`standing`), so that a coordinator that starts again learns all of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shoal.elastic.detect.progress import Shown

__all__ = ["Findings", "Look", "Outcome"]

Evidence = dict[str, Any]

ANSWER_SECONDS = 2.0
"""How long a stalled worker has to show that its interpreter runs."""


class Look(NamedTuple):
    """The worker at one moment; `shown` is meaningless when it is gone."""

    gone: bool
    stopped: bool
    shown: Shown


class Outcome(NamedTuple):
    """What follows from a look: messages for the coordinator; ask the worker for an answer; end it."""

    evidence: list[Evidence]
    ask: bool = False
    end: bool = False


class Findings:
    """What is known of one worker.

    It is *stalled* after `max_stall_seconds` of training without a mark, counted only while this process
    itself was awake and the worker was not stopped. A stalled worker is asked for an answer: if none of
    its threads can give one within two seconds, C code holds the interpreter for good and it is to be
    ended; if one can, it has as long again, for it learns that it is fenced and may come back by itself.
    """

    def __init__(self, max_stall_seconds: float, interval_seconds: float) -> None:
        self._max_stall = max_stall_seconds
        self._longest_step = 4 * interval_seconds  # what passes between two looks beyond that, we slept
        self._last: Look | None = None
        self._last_at = 0.0
        self._idle = 0.0
        self._answers_when_asked: int | None = None
        self._ended = False

    @property
    def gone(self) -> bool:
        """The worker has ended: nothing more will be found."""
        return self._last is not None and self._last.gone

    @property
    def stalled(self) -> bool:
        """There was no progress for too long."""
        return self._answers_when_asked is not None

    def look(self, look: Look, now: float) -> Outcome:
        """Take in what is seen now (monotonic seconds)."""
        last, self._last = self._last, look
        passed = min(now - self._last_at, self._longest_step) if last is not None else 0.0
        self._last_at = now
        if look.gone:
            return Outcome([] if last is not None and last.gone else [{"type": "gone"}])
        evidence: list[Evidence] = []
        if look.stopped != (last is not None and last.stopped):
            evidence.append({"type": "stopped" if look.stopped else "continued"})
        if last is None or not look.shown.training or look.shown.marks != last.shown.marks:
            self._idle = 0.0
            self._answers_when_asked = None
        elif not look.stopped and not last.stopped:
            self._idle += passed
        return self._stall(look, evidence)

    def standing(self) -> list[Evidence]:
        """What was found and still holds, for a coordinator that has got none of it."""
        if self._last is None:
            return []
        if self._last.gone:
            return [{"type": "gone"}]
        found: list[Evidence] = []
        if self._last.stopped:
            found.append({"type": "stopped"})
        if self.stalled:
            found.append(self._stalled())
        return found

    def _stall(self, look: Look, evidence: list[Evidence]) -> Outcome:
        if self._idle <= self._max_stall:
            return Outcome(evidence)
        if self._answers_when_asked is None:
            self._answers_when_asked = look.shown.answers
            return Outcome([*evidence, self._stalled()], ask=True)
        over = self._idle - self._max_stall
        deaf = look.shown.answers == self._answers_when_asked
        patience = min(ANSWER_SECONDS, self._max_stall) if deaf else self._max_stall
        if over <= patience or self._ended:
            return Outcome(evidence)
        self._ended = True
        return Outcome(evidence, end=True)

    def _stalled(self) -> Evidence:
        return {"type": "stalled", "seconds": round(self._idle, 3)}
