"""What of a job's state is worth a line while somebody looks on: reasons to wait, and turns for the
worse. Each is told once, however often the job is written."""

from __future__ import annotations

from shoal.cli.output import say
from shoal.cli.settings import Settings
from shoal.objects.job import Job

__all__ = ["Narrator"]

_TOLD = ("Preempting", "Resizing", "Restarting")


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
            if condition.type not in _TOLD or condition.status != "True":
                continue
            if self._conditions.get(condition.type) != condition.changed:
                self._conditions[condition.type] = condition.changed
                say(f"{self._name} {condition.type.lower()}: {condition.message or condition.reason}")
