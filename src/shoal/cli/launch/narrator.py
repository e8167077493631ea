"""The state of one followed job as lines on stderr: reasons to wait, failures, and lost workers.

Each is said once, however often the job is written. What happened to a task (which one ended, why, and
how many restarts are used) is in the job's events, so a change of the job's counters or conditions makes
the narrator read the events that are new. They are recorded a moment after the status is written, so it
looks again for a short while, and says what the status alone shows when no event comes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shoal.cli import output
from shoal.cli.settings import Settings
from shoal.objects.job import FINISHED, Job
from shoal.objects.text import duration, plural

if TYPE_CHECKING:
    from shoal.client import Entry

_PATIENCE_SECONDS = 0.5
_STUCK_SECONDS = 10.0
_JOIN_SECONDS = 30.0
_EVENTS_EACH_SECONDS = 0.2
_EVENTS_WITHIN_SECONDS = 2.0
_CHANGES = {
    "Preempting": "its tasks are being stopped, to free their resources",
    "Resizing": "its number of tasks changes",
    "Restarting": "",
}
_NORMAL_EVENTS = ("Preempted", "Shrunk", "Moved", "Resized", "NodeDrained", "FailureIgnored")
"""Events worth a line, as warnings are."""


def no_events(_after: str) -> Sequence[Entry]:
    """For a job without readable events."""
    return ()


class Narrator:
    """Says changes of one job. A reason to wait is said once it has held for a moment: on its way to
    its nodes every job waits a little. `events` gives the job's events after one's id."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        *,
        say: Callable[[str], None] = output.say,
        events: Callable[[str], Sequence[Entry]] = no_events,
    ) -> None:
        self._settings = settings
        self._name = name
        self._say = say
        self._events = events
        self._last_event = ""
        self._fallback = ""
        """What is said of a change when no event comes."""
        self._look_at = math.inf
        self._look_until = 0.0
        self._waiting = ""
        self._said = ""
        self._say_at = math.inf
        self._stuck_at = math.inf
        self._join_by = math.inf
        self._joined = False
        self._warned = False
        self._phase = ""
        self._failures = (0, 0)
        self._conditions: dict[str, float] = {}
        self._suspended = False

    def seconds_left(self) -> float:
        """How long until `speak` will have something to say, as far as is known."""
        due = min(self._say_at, self._stuck_at, self._look_at, self._join_by)
        return max(0.0, due - time.monotonic())

    def speak(self) -> None:
        """Say what has become due."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_for_events(now)
        if now >= self._say_at:
            self._say_at = math.inf
            self._said = self._waiting
            self._say(f"{self._name} waits: {self._waiting}")
        if now >= self._stuck_at:
            self._stuck_at = math.inf
            look = " and ".join(self._settings.spelt(w) for w in (f"explain {self._name}", "doctor"))
            self._say(f"{self._name} makes no progress towards its start; see {look}")
        if now >= self._join_by:
            self._warn_of_copies()

    def observe(self, job: Job) -> None:
        """Look at the job's newest state."""
        self._look_at_reason(job)
        if job.status.phase != self._phase or self._waiting:
            self._phase = job.status.phase
            unexplained = self._phase in ("Pending", "Starting") and not self._waiting
            self._stuck_at = time.monotonic() + _STUCK_SECONDS if unexplained else math.inf
        suspended = job.status.phase == "Suspended"
        if suspended and not self._suspended:
            again = self._settings.spelt(f"resume {self._name}")
            self._say(f"{self._name} is suspended; continue it with: {again}")
        self._suspended = suspended
        self._look_at_members(job)
        self._look_at_changes(job)

    def end(self, job: Job) -> None:
        """The job has finished: say what is still due."""
        if self._look_at < math.inf:
            self._look_for_events(self._look_until)
        if job.spec.runtime == "elastic" and job.status.phase == "Succeeded" and not self._joined:
            self._look_at_members(job)
            if not self._joined:
                self._warn_of_copies()

    def _look_at_reason(self, job: Job) -> None:
        scheduling = job.status.scheduling
        reason = scheduling.message or scheduling.code or job.status.message or job.status.reason
        waits = job.status.phase == "Pending" and not job.spec.cancelled
        self._waiting = reason if waits else ""
        if not self._waiting or self._waiting == self._said:
            self._say_at = math.inf
        elif self._say_at == math.inf:
            self._say_at = time.monotonic() + _PATIENCE_SECONDS

    def _look_at_members(self, job: Job) -> None:
        if job.spec.runtime != "elastic" or self._joined:
            return
        reported = job.status.elastic
        self._joined = reported is not None and (
            reported.world > 0 or any(each.size for each in reported.sizes)
        )
        if self._joined:
            self._join_by = math.inf
        elif job.status.phase == "Running" and self._join_by == math.inf and not self._warned:
            self._join_by = time.monotonic() + _JOIN_SECONDS

    def _warn_of_copies(self) -> None:
        self._join_by = math.inf
        if self._warned:
            return
        self._warned = True
        self._say(
            f"warning: no worker of {self._name} has joined the training. A script that does not call "
            "shoal.elastic.init() runs as independent copies, each over all of the data; "
            "--workers N without --min and --max gives it torchrun's environment instead"
        )

    def _look_at_changes(self, job: Job) -> None:
        """Note new failures and conditions; their events say what happened."""
        status = job.status
        for condition in status.conditions:
            change = _CHANGES.get(condition.type)
            if change is None or condition.status != "True":
                continue
            if self._conditions.get(condition.type) != condition.changed:
                self._conditions[condition.type] = condition.changed
                self._expect_events(change or _restart(job))
        failures = (status.failures, status.infrastructure_failures)
        if failures > self._failures:
            self._expect_events(_restart(job) if status.restart_after > time.time() else "")
        self._failures = failures

    def _expect_events(self, fallback: str) -> None:
        now = time.monotonic()
        self._fallback = self._fallback or fallback
        self._look_at, self._look_until = now, now + _EVENTS_WITHIN_SECONDS

    def _look_for_events(self, now: float) -> None:
        found = self._events(self._last_event)
        for entry in found:
            self._last_event = entry.id
            if entry.reason in FINISHED:
                continue  # the last line says it
            if entry.severity == "Warning" or entry.reason in _NORMAL_EVENTS:
                self._fallback = ""
                self._say(f"{self._name}: {entry.message}")
        if now < self._look_until:
            self._look_at = now + _EVENTS_EACH_SECONDS
            return
        self._look_at = math.inf
        if self._fallback:
            self._say(f"{self._name}: {self._fallback}")
            self._fallback = ""


def _restart(job: Job) -> str:
    wait = job.status.restart_after - time.time()
    soon = f" in {duration(wait)}" if wait > 0 else ""
    used = f"{job.status.failures} of {plural(job.spec.restart.limit, 'restart')} used"
    return f"tasks that failed start again{soon}; {used}"
