"""Where jobs wait: a Queue, with what it may use and who may use it. Cluster-wide."""

from __future__ import annotations

from typing import Annotated

import msgspec

from shoal.objects.meta import Condition, Name, Object, Part
from shoal.objects.quantities import Bytes, CpuMillis

__all__ = ["Queue", "QueueSpec", "QueueStatus", "QueueUsage", "Quota"]


class Quota(Part, frozen=True, kw_only=True):
    """The most that the running jobs of a queue may ask for together; absent fields are unlimited."""

    cpu: CpuMillis | None = None
    """Sum of what the running tasks request."""
    memory: Bytes | None = None
    """Sum of the running tasks' limits."""
    gpu: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Whole devices."""
    jobs: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Jobs that run at once."""


class QueueSpec(Part, frozen=True, kw_only=True):
    """What people ask for."""

    parent: str = ""
    """The queue above this one. Not available yet: refused unless absent."""
    quota: Quota = Quota()
    weight: float = 1.0
    """Share among queues that want the same machines. Not available yet: refused unless 1."""
    namespaces: tuple[Name, ...] = ()
    """Which may use the queue; empty: all."""
    highest_priority: dict[str, int | str] = {}
    """Namespace (or `*`) to the highest priority that its jobs may have here; absent: any."""


class QueueUsage(Part, frozen=True, kw_only=True):
    """What the queue's jobs hold now."""

    cpu: CpuMillis = CpuMillis(0)
    memory: Bytes = Bytes(0)
    gpu: int = 0


class QueueStatus(Part, frozen=True, kw_only=True):
    """Written by the queue controller."""

    pending: int = 0
    running: int = 0
    usage: QueueUsage = QueueUsage()
    oldest_pending: float = 0.0
    """When the oldest waiting job was created; 0: none waits."""
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0
    writers: dict[str, int] = {}


class Queue(Object, frozen=True, kw_only=True):
    """A line of jobs with a quota."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
    kind: str = "Queue"

    @property
    def key(self) -> tuple[str, str]:
        """See `Object.key`: no namespace, whatever the metadata says."""
        return ("", self.metadata.name)
