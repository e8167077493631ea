"""The metric points of a trial's Job, as the experiment controller reads them.

What collects metrics (reports from tasks, the standard output, files) implements `MetricSource`; the
controller knows nothing else of it. Every point has an `order` that is given once, when the point is
stored, and rises within a job: the controller records the order of the newest point that it has
evaluated (`Trial.status.reports`), so that a new server continues where its predecessor stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["MetricPoint", "MetricSource", "NoMetrics"]


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric."""

    name: str
    value: float
    """May be NaN or infinite, as it was reported."""
    step: int
    """As it was reported; where none was given, the number of earlier points of this metric + 1."""
    at: float
    """Wall time of the report, seconds since 1970."""
    order: int
    """Rises with each stored point of the job, from 1; never changes."""


class MetricSource(Protocol):
    """Where the points of jobs are read. Thread-safe; neither call waits for a task or a network."""

    def points(self, namespace: str, job_uid: str, since: int = 0) -> Sequence[MetricPoint]:
        """The points of the Job of this uid whose order is above `since`, by order.

        Empty for a job that is not known. Points of a job that has been deleted stay readable for as
        long as its history.
        """
        ...

    def complete(self, namespace: str, job_uid: str) -> bool:
        """Whether everything that the ended Job has reported is stored: no point will follow.

        The controller asks once the job has ended, and decides that the objective is missing only when
        the answer is True. It becomes True within seconds of the end, whatever happened to the tasks.
        """
        ...


class NoMetrics:
    """A `MetricSource` of a platform that collects nothing."""

    def points(self, namespace: str, job_uid: str, since: int = 0) -> Sequence[MetricPoint]:
        """See `MetricSource.points`."""
        return ()

    def complete(self, namespace: str, job_uid: str) -> bool:
        """See `MetricSource.complete`."""
        return True
