"""Decayed usage of users: what orders jobs inside a queue, and starts between equal queues."""

from __future__ import annotations

import math
from collections.abc import Iterable

from shoal.objects.meta import Stamp
from shoal.schedule.core.state import JobState

__all__ = ["HALF_LIFE_SECONDS", "Usage"]

HALF_LIFE_SECONDS = 86_400.0
_PRESENT_SECONDS = 600.0
"""What a user holds now counts as if it had been held for so long."""

_Key = tuple[int, str]


class Usage:
    """GPU seconds (task seconds without GPUs) by queue and user, halved every half-life. 0: no decay
    and no history, the present alone counts."""

    def __init__(self, half_life: float = HALF_LIFE_SECONDS) -> None:
        self.half_life = half_life
        self.totals: dict[_Key, float] = {}
        self.rates: dict[_Key, float] = {}
        self.at: Stamp | None = None

    def advance(self, jobs: Iterable[JobState], now: Stamp) -> None:
        """Account for the time since the last decision at its rates; `jobs` set the new rates."""
        if self.at is not None and now > self.at and self.half_life > 0:
            passed = now - self.at
            factor = math.exp2(-passed / self.half_life)
            for key in self.totals.keys() | self.rates.keys():
                gained = self.rates.get(key, 0.0) * passed
                self.totals[key] = self.totals.get(key, 0.0) * factor + gained
        self.at = now
        self.rates = {}
        for job in jobs:
            if job.row.tasks:
                self.add(job, weight_of(job))

    def add(self, job: JobState, weight: float) -> None:
        """The job holds more (or less) from now on."""
        key = (job.queue, job.row.user)
        self.rates[key] = self.rates.get(key, 0.0) + weight

    def of(self, job: JobState) -> float:
        """Of the job's user in its queue, what its jobs hold now included."""
        key = (job.queue, job.row.user)
        return self.totals.get(key, 0.0) + self.rates.get(key, 0.0) * _PRESENT_SECONDS


def weight_of(job: JobState) -> float:
    """What it holds: GPUs, or tasks where it has none."""
    gpus = 0.0
    roles = {role.name: at for at, role in enumerate(job.row.roles)}
    for task in job.row.tasks:
        gpus += float(job.loads[roles[task.role], -2])
    return gpus or float(len(job.row.tasks))
