"""What the controllers and people's writes leave in history.

Writes of people may come before history is up: they wait here, not many and not long.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from shoal.cluster.base import Cluster, Task
from shoal.history.base import About
from shoal.history.recorder import Recorder, about
from shoal.objects import codec
from shoal.objects.meta import Object, Stamp
from shoal.store.base import Actor, Record

_MOST_WAITING = 10_000


class Audit:
    """One audit event for each write through the API, and the server's own warnings, also those from
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

    def wrote(
        self,
        verb: str,
        actor: Actor,
        before: Object | None,
        after: Object | None,
        *,
        reason: str,
        message: str,
    ) -> None:
        """The actor has written an object: an event for its users, and an audit event."""
        obj = after or before
        assert obj is not None
        self._note(lambda recorder: recorder.event(about(obj), reason, message, actor=actor.name))
        self.audited(verb, actor, before, after)

    def audited(self, verb: str, actor: Actor, before: Object | None, after: Object | None) -> None:
        """Record actor and verb of a write, with digests of what users own of it before and after."""
        obj = after or before
        assert obj is not None
        digests = {"before": digest_of(before), "after": digest_of(after)}
        self._note(lambda recorder: recorder.audit(about(obj), verb, actor.name, **digests))

    def deleted(self, record: Record, message: str, actor: Actor) -> None:
        """The actor has deleted the object, which may be one that cannot be decoded."""
        namespace, name, uid, _ = record.identity
        what = About(kind=record.kind.name, namespace=namespace, name=name, uid=uid)
        before = digest_of(record)
        self._note(lambda recorder: recorder.event(what, "Deleted", message, actor=actor.name))
        self._note(lambda recorder: recorder.audit(what, "delete", actor.name, before=before, after=""))

    def wrong(self, what: About, reason: str, message: str) -> None:
        """Something is not as it should be, and the server goes on."""
        self._note(lambda recorder: recorder.event(what, reason, message, severity="Warning"))

    def _note(self, note: Callable[[Recorder], None]) -> None:
        with self._lock:
            if self._recorder is None:
                self._waiting.append(note)
            else:
                note(self._recorder)


def digest_of(obj: Object | Record | None) -> str:
    """SHA-256 of what users own of an object, its spec, labels, annotations, finalizers and owners;
    empty for none. The same for equal objects, whatever their version and status."""
    if obj is None:
        return ""
    document: Any = msgspec.json.decode(obj.document if isinstance(obj, Record) else codec.encode(obj))
    metadata = document.get("metadata", {})
    owned = {name: metadata.get(name) for name in ("labels", "annotations", "finalizers", "owners")}
    text = msgspec.json.encode({"spec": document.get("spec"), **owned}, order="sorted")
    return hashlib.sha256(text).hexdigest()


class HistoryRecorder:
    """The `EventRecorder` of the controllers, kept in history."""

    def __init__(self, recorder: Recorder, cluster: Cluster) -> None:
        self._recorder = recorder
        self._cluster = cluster

    def event(
        self,
        obj: Object,
        reason: str,
        message: str,
        *,
        warning: bool,
        at: Stamp,
        jobs: tuple[str, ...] = (),
    ) -> None:
        """See `shoal.control.context.EventRecorder.event`."""
        severity = "Warning" if warning else "Normal"
        data = {"jobs": list(jobs)} if jobs else None
        self._recorder.event(about(obj), reason, message, severity=severity, data=data)

    def attempt(self, job: Object, task: Task) -> None:
        """See `EventRecorder.attempt`; with what the task has used, while its node still knows."""
        outcome = task.outcome
        if outcome is None:
            return
        subject = about(job)
        self._recorder.attempt(
            subject,
            task.spec,
            started=task.started,
            ended=task.ended,
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            stop_reason=outcome.stop_reason or "",
            message=outcome.message,
        )
        used = task.usage
        if used is None:
            return
        self._recorder.usage(
            subject,
            task.spec,
            ended=task.ended,
            cpu_seconds=used.cpu_seconds,
            peak_memory_bytes=used.peak_memory_bytes,
            gpu_ratio=used.gpu_ratio,
        )

    def decision(self, obj: Object, key: str, code: str, message: str, evidence: dict[str, Any]) -> None:
        """See `EventRecorder.decision`."""
        self._recorder.decision(about(obj), key, code, message, evidence)
