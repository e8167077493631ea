"""What of a job's state is worth a line while somebody looks on: reasons to wait, and turns for the
worse. Each is told once, however often the job is written."""

from __future__ import annotations

import math
import time

from shoal.cli.output import say
from shoal.cli.settings import Settings
from shoal.cli.text import duration
from shoal.objects.job import Job
from shoal.objects.meta import Condition

__all__ = ["Narrator"]

_PATIENCE_SECONDS = 0.5
_STUCK_SECONDS = 10.0
_DOING = {
    "Preempting": "gives its place to others",
    "Resizing": "changes its size",
    "Restarting": "starts again",
}


class Narrator:
    """Tells changes of one job on stderr. A reason to wait is told once it has held for a moment: on
    its way to its nodes every job waits a little."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._waiting = ""
        self._told = ""
        self._tell_at = math.inf
        self._stuck_at = math.inf
        self._phase = ""
        self._conditions: dict[str, float] = {}
        self._suspended = False

    def seconds_left(self) -> float:
        """How long until `speak` will have something to say, as far as is known."""
        return max(0.0, min(self._tell_at, self._stuck_at) - time.monotonic())

    def speak(self) -> None:
        """Say what has become due."""
        now = time.monotonic()
        if now >= self._tell_at:
            self._tell_at = math.inf
            self._told = self._waiting
            say(f"{self._name} waits: {self._waiting}")
        if now >= self._stuck_at:
            self._stuck_at = math.inf
            look = " and ".join(self._settings.spelt(w) for w in (f"explain {self._name}", "doctor"))
            say(f"{self._name} has not got further for a while; see {look}")

    def tell(self, job: Job) -> None:
        """Look at the job's newest state."""
        self._look_at_reason(job)
        if job.status.phase != self._phase or self._waiting:
            self._phase = job.status.phase
            unexplained = self._phase in ("Pending", "Starting") and not self._waiting
            self._stuck_at = time.monotonic() + _STUCK_SECONDS if unexplained else math.inf
        suspended = job.status.phase == "Suspended"
        if suspended and not self._suspended:
            say(f"{self._name} is suspended; go on with: {self._settings.spelt(f'resume {self._name}')}")
        self._suspended = suspended
        for condition in job.status.conditions:
            doing = _DOING.get(condition.type)
            if doing is None or condition.status != "True":
                continue
            if self._conditions.get(condition.type) != condition.changed:
                self._conditions[condition.type] = condition.changed
                say(f"{self._name} {doing}{_detail(job, condition)}")

    def _look_at_reason(self, job: Job) -> None:
        scheduling = job.status.scheduling
        waits = job.status.phase == "Pending" and scheduling.code and not job.spec.cancelled
        self._waiting = (scheduling.message or scheduling.code) if waits else ""
        if not self._waiting or self._waiting == self._told:
            self._tell_at = math.inf
        elif self._tell_at == math.inf:
            self._tell_at = time.monotonic() + _PATIENCE_SECONDS


def _detail(job: Job, condition: Condition) -> str:
    if condition.type == "Restarting":
        restart = job.spec.restart
        wait = job.status.restart_after - time.time()
        soon = f" in {duration(wait)}" if wait > 0 else ""
        return f"{soon} ({job.status.failures} of {restart.limit} restarts used)"
    said = condition.message or condition.reason
    return f": {said}" if said else ""
