"""What a job's row says of its speed and work, as policies see it.

What a user declared is believed as long as it can be: a job that goes on beyond it has as much before it
as behind it (`schedule.sizing.estimate`).
"""

from __future__ import annotations

import math

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.rows import Job, Role

__all__ = ["check", "elastic_role", "remaining", "run_seconds", "speed"]


def check(job: Job) -> None:
    """Raises ValueError, in a sentence, for a curve or an amount of work that cannot be."""
    for at, value in enumerate(job.speeds, 1):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"job {job.name}: a speed of {value:g} with {at} tasks is not a speed")
    if job.speeds:
        role = elastic_role(job)
        least = max(1, role.minimum if role is not None else 1)
        if speed(job, least) <= 0:
            raise ValueError(
                f"job {job.name} makes no progress with {least} tasks, which is its minimum"
            )
    if job.work is not None and not (math.isfinite(job.work) and job.work > 0):
        raise ValueError(f"job {job.name}: work of {job.work:g} is not an amount of work")
    for name in ("done", "restart_seconds", "service_seconds"):
        value: float = getattr(job, name)
        if not 0 <= value < math.inf:
            raise ValueError(f"job {job.name}: {name} of {value:g} is not a number from 0 up")


def elastic_role(job: Job) -> Role | None:
    """The role of which it may have more or fewer tasks; None: there is none, or more than one."""
    found = [role for role in job.roles if role.maximum > max(role.minimum, 0)]
    return found[0] if len(found) == 1 else None


def speed(job: Job, tasks: int) -> float:
    """Progress per second; beyond the end of its curve nothing is gained."""
    return job.speeds[min(tasks, len(job.speeds)) - 1] if tasks > 0 and job.speeds else 0.0


def remaining(job: Job) -> float | None:
    """Progress still to make; None: nobody said."""
    if job.work is None:
        return None
    left = job.work - job.done
    return left if left > 0 else max(job.done, 1.0)


def run_seconds(job: Job, tasks: int, now: Stamp) -> float:
    """How long it will go on with so many tasks, as far as is known: by its wall time, else its work."""
    if job.wall_seconds is not None:
        began = job.since if job.present else now
        return max(0.0, began + job.longest_seconds - now)
    left, fast = remaining(job), speed(job, tasks)
    return math.inf if left is None or not fast else left / fast
