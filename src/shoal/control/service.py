"""What a job has had of the cluster: GPUs times seconds, or tasks times seconds where it asks for none.

What it holds changes only when its allocation is written, so each writing adds what the one before it
has come to. Slots count from when they are given, and no task less for being on its way up.
"""

from __future__ import annotations

from shoal.objects.elastic import own_roles
from shoal.objects.job import Job, share_of
from shoal.objects.meta import Stamp
from shoal.objects.ranges import IndexSet

__all__ = ["served", "service_rate"]


def served(job: Job, now: Stamp) -> float:
    """Up to now, over all of its attempts."""
    held = job.status.allocation
    return held.served + service_rate(job) * max(0.0, now - held.changed)


def service_rate(job: Job) -> float:
    """So much more each second, with the slots that it has."""
    own = own_roles(job.spec)
    gpus = {role.name: role.resources.gpu + share_of(role.resources) / 1000 for role in own}
    each = gpus if any(gpus.values()) else dict.fromkeys(gpus, 1.0)
    return sum(
        each.get(slots.role, 0.0) * len(IndexSet.parse(slots.indices))
        for slots in job.status.allocation.slots
    )
