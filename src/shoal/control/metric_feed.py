"""Metric points for controllers: which jobs have new ones, and the points themselves.

A controller names the feed as one of its sources, as it does a cache: it gets the keys of the jobs whose
points have come since the last sync, at once when this server took them and within `POLL_SECONDS` when
another did. Level-triggered: after a restart every job with kept points comes once more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from shoal.history.base import History, JobKey, Point

__all__ = ["POLL_SECONDS", "MetricFeed"]

POLL_SECONDS = 1.0


class MetricFeed:
    """See `shoal.control.runner.Cache`. `on_change` callbacks get `(None, JobKey)`; without a history
    there are never points."""

    name = "metrics"

    def __init__(self, history: History | None) -> None:
        self._history = history
        self._order = 0
        self._synced = False
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._callbacks: list[Callable[[Any, Any], None]] = []
        self._announced: list[JobKey] = []
        self._is_collected: Callable[[str], bool] = lambda uid: True

    @property
    def synced(self) -> bool:
        """True after the first sync."""
        return self._synced

    @property
    def ready(self) -> threading.Event:
        """Set it when points have been appended."""
        return self._ready

    def sync(self) -> bool:
        """Call back for each job with new points; True if there was one.

        Raises:
            Unavailable: the history does not answer.
        """
        self._ready.clear()
        jobs: Sequence[JobKey] = ()
        if self._history is not None:
            self._order, jobs = self._history.jobs_with_points(self._order)
        self._synced = True
        with self._lock:
            jobs, self._announced = [*jobs, *self._announced], []
        for job in jobs:
            for callback in self._callbacks:
                callback(None, job)
        return bool(jobs)

    def sync_after(self) -> float:
        """See `Cache.sync_after`."""
        return POLL_SECONDS

    def on_change(self, callback: Callable[[Any, Any], None]) -> None:
        """See `Cache.on_change`."""
        self._callbacks.append(callback)

    def close(self) -> None:
        """Nothing is held."""

    def points(self, namespace: str, job_uid: str, since: int = 0) -> tuple[Point, ...]:
        """The points of a job behind the order `since`, in their order.

        Raises:
            Unavailable: the history does not answer.
        """
        if self._history is None:
            return ()
        return self._history.points(namespace, uid=job_uid, after=since)

    def complete(self, namespace: str, job_uid: str) -> bool:
        """Whether everything that an ended job has written is kept: no point will follow. A program's
        reports are kept before it ends, so it depends on the collector alone."""
        return self._is_collected(job_uid)

    def collected_by(self, is_collected: Callable[[str], bool]) -> None:
        """Ask this whether all that an ended job (its uid) has written is collected."""
        self._is_collected = is_collected

    def announce(self, job: JobKey) -> None:
        """Have the callbacks called for a job at the next sync, and sync soon."""
        with self._lock:
            self._announced.append(job)
        self._ready.set()
