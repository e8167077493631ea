"""What the controllers and people's writes leave in history.

Writes of people may come before history is up: they wait here, not many and not long.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from shoal.cluster.base import Cluster, Task
from shoal.history.base import About
from shoal.history.recorder import Recorder, about
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.job import Job
from shoal.objects.meta import Object, Stamp
from shoal.store.base import Record

__all__ = ["Audit", "HistoryRecorder"]

_MOST_WAITING = 10_000


class Audit:
    """One event for each write of a person: what, and whose it was; and for what a server finds wrong
    before history is up. Thread-safe; never waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recorder: Recorder | None = None
        self._waiting: deque[Callable[[Recorder], None]] = deque(maxlen=_MOST_WAITING)

    def attach(self, recorder: Recorder) -> None:
        """History is up: record what has waited, and from now on at once."""
        with self._lock:
            for note in self._waiting:
                note(recorder)
            self._waiting.clear()
            self._recorder = recorder

    def wrote(self, obj: Object, reason: str, message: str, actor: str) -> None:
        """The actor has written the object."""

        def note(recorder: Recorder) -> None:
            recorder.event(about(obj), reason, message, actor=actor)

        self._note(note)

    def deleted(self, record: Record, message: str, actor: str) -> None:
        """The actor has deleted the object, which may be one that cannot be decoded."""
        namespace, name, uid, _ = record.identity
        what = About(kind=record.kind.name, namespace=namespace, name=name, uid=uid)
        self._note(lambda recorder: recorder.event(what, "Deleted", message, actor=actor))

    def wrong(self, what: About, reason: str, message: str) -> None:
        """Something is not as it should be, and the server goes on."""
        self._note(lambda recorder: recorder.event(what, reason, message, severity="Warning"))

    def _note(self, note: Callable[[Recorder], None]) -> None:
        with self._lock:
            if self._recorder is None:
                self._waiting.append(note)
            else:
                note(self._recorder)


class HistoryRecorder:
    """A `Notebook` of the job controller and a `DecisionRecorder` of the scheduler, kept in history."""

    def __init__(self, recorder: Recorder, cluster: Cluster) -> None:
        self._recorder = recorder
        self._cluster = cluster

    def event(self, job: Job, reason: str, message: str, *, warning: bool, at: Stamp) -> None:
        """See `Notebook.event`."""
        severity = "Warning" if warning else "Normal"
        self._recorder.event(about(job), reason, message, severity=severity)

    def attempt(self, job: Job, task: Task) -> None:
        """See `Notebook.attempt`; with what the task has used, while its node still knows."""
        outcome = task.outcome
        if outcome is None:
            return
        whose = about(job)
        self._recorder.attempt(
            whose,
            task.spec,
            started=task.started,
            ended=task.ended,
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            stop_reason=outcome.stop_reason or "",
            message=outcome.message,
        )
        try:
            used = self._cluster.usage(task.spec.key)
        except (NotFound, Unavailable):
            return  # the node has forgotten it, or is silent: then nobody knows
        self._recorder.usage(
            whose,
            task.spec,
            ended=task.ended,
            cpu_seconds=used.cpu_seconds,
            peak_memory_bytes=used.peak_memory_bytes,
            gpu_ratio=used.gpu_ratio,
        )

    def decision(
        self, about: About, key: str, code: str, message: str, evidence: dict[str, Any]
    ) -> None:
        """See `DecisionRecorder.decision`."""
        self._recorder.decision(about, key, code, message, evidence)
