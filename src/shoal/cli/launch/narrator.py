"""What of a job's state is worth a line while somebody looks on: reasons to wait, and turns for the
worse. Each is told once, however often the job is written."""

from __future__ import annotations

import time

from shoal.cli.output import say
from shoal.cli.settings import Settings
from shoal.cli.text import duration
from shoal.objects.job import Job
from shoal.objects.meta import Condition

__all__ = ["Narrator"]

_DOING = {
    "Preempting": "gives its place to others",
    "Resizing": "changes its size",
    "Restarting": "starts again",
}


class Narrator:
    """Tells changes of one job on stderr."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._waiting = ""
        self._conditions: dict[str, float] = {}
        self._suspended = False

    def tell(self, job: Job) -> None:
        """Look at the job's newest state."""
        scheduling = job.status.scheduling
        waiting = ""
        if job.status.phase == "Pending" and scheduling.code and not job.spec.cancelled:
            waiting = scheduling.message or scheduling.code
        if waiting and waiting != self._waiting:
            say(f"{self._name} waits: {waiting}")
        self._waiting = waiting
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


def _detail(job: Job, condition: Condition) -> str:
    if condition.type == "Restarting":
        restart = job.spec.restart
        wait = job.status.restart_after - time.time()
        soon = f" in {duration(wait)}" if wait > 0 else ""
        return f"{soon} ({job.status.failures} of {restart.limit} restarts used)"
    said = condition.message or condition.reason
    return f": {said}" if said else ""
