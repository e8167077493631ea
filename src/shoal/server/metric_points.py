"""Metric points that tasks report: what a batch may hold, how much is taken, and where it goes.

A batch is on disk before its answer, so a sender that got no answer sends it again and nothing is lost
or kept twice. The controllers are notified of each batch. Each job has a token bucket, so that one job
cannot fill the history.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from typing import Annotated, Literal

import msgspec

from shoal.clock import Clock
from shoal.control.metric_collector import MetricFeed
from shoal.history.base import History, JobKey, Point
from shoal.objects.errors import Unavailable
from shoal.objects.job import Job

POINTS_PER_SECOND = 5_000.0
"""Of one job, sustained."""
BURST_POINTS = 50_000.0
_MOST_POINTS = 10_000
_MOST_JOBS = 10_000

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class ReportedPoint(msgspec.Struct, frozen=True, array_like=True):
    """One point; the names are words because JSON has no such numbers."""

    sequence: Natural
    name: Name
    value: float | Literal["NaN", "Infinity", "-Infinity"]
    step: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] | None
    at: float


class Batch(msgspec.Struct, frozen=True):
    """Points of one process (`name`) of one task."""

    role: Annotated[str, msgspec.Meta(max_length=63)]
    index: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
    incarnation: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    points: Annotated[tuple[ReportedPoint, ...], msgspec.Meta(max_length=_MOST_POINTS)]


class MetricIntake:
    """Takes batches. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, job: Job, batch: Batch, history: History, feed: MetricFeed | None) -> int:
        """Keep a batch of the job's points; how many were new.

        Raises:
            Unavailable: the job reports more than it may, or the history does not answer; later, the
                same batch is taken.
        """
        self._charge(job, len(batch.points))
        meta = job.metadata
        key = JobKey(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        writer = f"{batch.role}-{batch.index}-{batch.incarnation}/{batch.name}"
        added = history.append_points(
            [
                Point(
                    job=key,
                    name=each.name,
                    value=float(each.value),
                    at=each.at if math.isfinite(each.at) else self._clock.now(),
                    step=each.step,
                    role=batch.role,
                    index=batch.index,
                    incarnation=batch.incarnation,
                    writer=writer,
                    sequence=each.sequence,
                )
                for each in batch.points
            ]
        )
        if added and feed is not None:
            feed.ready.set()
        return added

    def _charge(self, job: Job, count: int) -> None:
        """Take as many tokens out of the job's bucket."""
        uid, now = job.metadata.uid, self._clock.monotonic()
        with self._lock:
            left, since = self._buckets.pop(uid, (BURST_POINTS, now))
            left = min(BURST_POINTS, left + (now - since) * POINTS_PER_SECOND)
            enough = left >= count
            self._buckets[uid] = (left - count if enough else left, now)
            if len(self._buckets) > _MOST_JOBS:
                self._buckets.popitem(last=False)
        if not enough:
            raise Unavailable(
                f"job {job.metadata.name} reports more than {POINTS_PER_SECOND:g} metric points "
                "a second",
                hint="report once per step or less often",
            )
