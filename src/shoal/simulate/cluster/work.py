"""What a job of a simulation has to do, and how fast it does it on so many tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.rows import Job
from shoal.schedule.cycle.sizes import outlook
from shoal.simulate.errors import BadInput

__all__ = ["Arrival", "least"]


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A job that comes at `at` with `seconds` of work, counted on its smallest gang. It is as fast with
    more as its row says (`Job.speeds`), where that says so."""

    at: Stamp
    job: Job
    seconds: float
    exponent: float = 1.0
    """Speed is (tasks / smallest gang) to this power: 1 is linear, 0 gains nothing."""
    keeps: bool = True
    """What was done before it lost all its tasks is not lost: it takes checkpoints."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise BadInput(f"{self.job.name}: {self.seconds:g} seconds of work is not an amount of work")
        if not 0 <= self.exponent <= 1:
            raise BadInput(f"{self.job.name}: speed grows with a power from 0 to 1 of the tasks")

    def speed(self, job: Job) -> float:
        """Seconds of work done in a second on the tasks that the job has: 0 below its minimum."""
        present = [task.role for task in job.tasks if not task.stopping]
        if not present or len(present) < job.minimum:
            return 0.0
        if any(present.count(role.name) < role.minimum for role in job.roles):
            return 0.0
        role = outlook.elastic_role(job)
        if job.speeds and role is not None:
            tasks = present.count(role.name)
            return outlook.speed(job, tasks) / outlook.speed(job, max(1, role.minimum))
        return (len(present) / least(job)) ** self.exponent

    def progress(self, seconds: float) -> float:
        """So many seconds of work, in the unit of its row."""
        role = outlook.elastic_role(self.job)
        if not self.job.speeds or role is None:
            return seconds
        return seconds * outlook.speed(self.job, max(1, role.minimum))


def least(job: Job) -> int:
    """Tasks of its smallest gang."""
    return max(job.minimum, sum(role.minimum for role in job.roles), 1)
