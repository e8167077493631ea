"""Where jobs wait: a Queue, with what it may use and who may use it. Cluster-wide."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from shoal.objects.meta import Condition, Name, Namespace, Object, Part
from shoal.objects.quantities import Bytes, CpuMillis, Seconds

__all__ = ["Amounts", "Queue", "QueueBudget", "QueueSpec", "QueueStatus", "QueueUsage", "Quota"]


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


class Amounts(Part, frozen=True, kw_only=True):
    """So much of each resource; what an absent field means is said where amounts are used."""

    cpu: CpuMillis | None = None
    memory: Bytes | None = None
    gpu: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Devices; parts of one count too."""


class QueueBudget(Part, frozen=True, kw_only=True):
    """Hours of a resource that the jobs of a queue may use in all."""

    name: Name
    """What people know it by: whoever is held back by it is told this."""
    resource: Literal["cpu", "memory", "gpu", "node"]
    """An hour of it is an hour of one core, one GiB, one device, or one node."""
    hours: float
    """More than 0."""


class QueueSpec(Part, frozen=True, kw_only=True):
    """What people ask for."""

    parent: Namespace = ""
    """The queue above this one; absent: none is. What is stated of a queue with others below it counts
    for all of them together."""
    quota: Quota = Quota()
    nominal: Amounts = Amounts()
    """The queue's own: lent while it does not need it, given back when it does. Absent: nothing."""
    guaranteed: Amounts = Amounts()
    """Of nominal, what is kept for the queue: lent to nobody, taken by nobody. Absent: nothing."""
    borrowing: Amounts = Amounts()
    """So much beyond nominal at most. Absent: no bound."""
    lending: Amounts = Amounts()
    """So much of nominal is lent at most. Absent: all but what is guaranteed."""
    weight: float = 1.0
    """Share of what nobody has as its own, among the queues that want it: more than 0."""
    priority: int = 0
    """Of the queues below one parent that borrow, the higher come first."""
    fenced: bool = False
    """True: jobs inside the queue take nothing back from outside of it."""
    user_limit: Quota = Quota()
    """The most that the running jobs of one user may ask for together."""
    min_runtime: Seconds | None = None
    """A job that has run for less is not taken from for jobs of other queues. Absent: at once."""
    budgets: tuple[QueueBudget, ...] = ()
    """What is used up for good: then nothing starts until there is more."""
    namespaces: tuple[Name, ...] = ()
    """Which may use the queue; empty: all."""
    highest_priority: dict[str, int | str] = {}
    """Namespace (or `*`) to the highest priority that its jobs may have here; absent: any."""


class QueueUsage(Part, frozen=True, kw_only=True):
    """What the queue's jobs hold now."""

    cpu: CpuMillis = CpuMillis(0)
    memory: Bytes = Bytes(0)
    gpu: float = 0
    """Devices; parts of one count too."""


class QueueStatus(Part, frozen=True, kw_only=True):
    """Written by the queue controller."""

    pending: int = 0
    running: int = 0
    usage: QueueUsage = QueueUsage()
    oldest_pending: float = 0.0
    """When the oldest waiting job was created; 0: none waits."""
    spent: dict[str, float] = {}
    """Budget to the hours of it that are used up, by `accounted`."""
    accounted: float = 0.0
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
