"""How far a job is with its work, kept up to date whenever its tasks change."""

from __future__ import annotations

import math

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.rows import Job, Task
from shoal.simulate.cluster.work import Arrival

__all__ = ["Progress"]


class Progress:
    """Of one job; `seconds` of work as it really is."""

    def __init__(self, arrival: Arrival, seconds: float) -> None:
        self.arrival = arrival
        self.seconds = seconds
        self.left = seconds
        self.lost = 0.0
        """Seconds of work that have to be done again."""
        self.speed = 0.0
        self.at: Stamp = arrival.at
        """Up to when work is counted; later than now while it restarts."""
        self.turn = 0
        """Ends that were foreseen in earlier turns do not come."""
        self.service = 0.0
        """Seconds of its GPUs, or of its tasks where it has none, up to when it had others."""
        self._served_at: Stamp = arrival.at
        self._rate = 0.0
        self._present: tuple[Task, ...] = ()

    def done(self, now: Stamp) -> float:
        """Seconds of work behind it."""
        return self.seconds - self.left + max(0.0, now - self.at) * self.speed

    def served(self, now: Stamp) -> float:
        """Seconds of its GPUs, or of its tasks where it has none."""
        return self.service + self._rate * (now - self._served_at)

    def turn_to(self, job: Job, now: Stamp, restart_seconds: float) -> bool:
        """The job has these tasks from now on. False, and nothing is new, where they are the same."""
        present = job.present
        if present == self._present:
            return False
        if now > self.at:
            self.left -= (now - self.at) * self.speed
            self.at = now
        self.service, self._served_at = self.served(now), now
        if not present and not self.arrival.keeps:
            self.lost += self.seconds - self.left
            self.left = self.seconds
        self._present = present
        self._rate = _rate(job, present)
        self.speed = self.arrival.speed(job)
        if self.speed:
            self.at = now + restart_seconds
        self.turn += 1
        return True

    def ends(self, now: Stamp) -> Stamp:
        """When it is done at this speed."""
        return max(self.at, now) + max(self.left, 0.0) / self.speed if self.speed else math.inf


def _rate(job: Job, present: tuple[Task, ...]) -> float:
    gpus = {role.name: role.gpus + role.share / 1000 for role in job.roles}
    each = gpus if any(gpus.values()) else dict.fromkeys(gpus, 1.0)
    return sum(each[task.role] for task in present)
