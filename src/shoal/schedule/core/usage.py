"""Decayed usage of users: what orders jobs inside a queue, and starts between equal queues.

It is a function of rows: usage up to a time stamp, and what jobs have held since then. So a decision
depends on nothing that a restarted server would have forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from shoal.objects.meta import Stamp
from shoal.schedule.core.state import JobState
from shoal.schedule.cycle.rows import Job, UserUsage

__all__ = ["Usage", "UsageLedger", "accrued", "weight_of"]

_PRESENT_SECONDS = 600.0
"""What a user holds now counts as if it had been held for so long."""


def accrued(seconds: float, rate: float, passed: float, half_life: float) -> float:
    """Decayed usage after `passed` seconds at a constant rate; equal in parts or at once."""
    if half_life <= 0:
        return 0.0
    factor = math.exp2(-max(0.0, passed) / half_life)
    return seconds * factor + rate * half_life / math.log(2.0) * (1.0 - factor)


def weight_of(job: Job) -> float:
    """What a job holds: GPUs, or tasks where it has none."""
    each = {role.name: role.gpus + role.share / 1000 for role in job.roles}
    return sum(each[task.role] for task in job.tasks) or float(len(job.tasks))


class Usage:
    """Of one decision, by queue and user."""

    def __init__(
        self,
        rows: Iterable[UserUsage],
        queues: Mapping[str, int],
        jobs: Iterable[JobState],
        half_life: float,
        now: Stamp,
    ) -> None:
        self._rates: dict[tuple[int, str], float] = {}
        for job in jobs:
            if job.row.tasks:
                self.add(job, weight_of(job.row))
        self._totals: dict[tuple[int, str], float] = {}
        for row in rows:
            if row.queue in queues:
                key = (queues[row.queue], row.user)
                rate = self._rates.get(key, 0.0)
                self._totals[key] = accrued(row.seconds, rate, now - row.at, half_life)

    def add(self, job: JobState, weight: float) -> None:
        """The job holds more from now on."""
        key = (job.queue, job.row.user)
        self._rates[key] = self._rates.get(key, 0.0) + weight

    def of(self, job: JobState) -> float:
        """Of the job's user in its queue, what its jobs hold now included."""
        key = (job.queue, job.row.user)
        return self._totals.get(key, 0.0) + self._rates.get(key, 0.0) * _PRESENT_SECONDS


class UsageLedger:
    """Usage over time where nothing else keeps it (the simulator): rates are those of the last look."""

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._totals: dict[tuple[str, str], float] = {}
        self._rates: dict[tuple[str, str], float] = {}
        self._at: Stamp = 0.0

    def look(self, jobs: Iterable[Job], now: Stamp) -> tuple[UserUsage, ...]:
        """Usage up to now; `jobs` hold what they hold from now on."""
        keys = self._totals.keys() | self._rates.keys()
        for key in keys:
            before, rate = self._totals.get(key, 0.0), self._rates.get(key, 0.0)
            self._totals[key] = accrued(before, rate, now - self._at, self._half_life)
        self._at, self._rates = now, {}
        for job in jobs:
            if job.tasks:
                key = (job.queue, job.user)
                self._rates[key] = self._rates.get(key, 0.0) + weight_of(job)
        return tuple(
            UserUsage(queue=queue, user=user, seconds=seconds, at=now)
            for (queue, user), seconds in sorted(self._totals.items())
            if seconds > 0.0
        )
