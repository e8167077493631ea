"""Why an object is in the state it is in, put together from what its writers left in its status.

Nothing is reasoned out again here: the scheduler's code and numbers are the plan's own, the phase's
reason is the job controller's. What is added is who goes first, and what happened lately.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.client.reports import Explanation, TaskReport
from shoal.cluster.base import Cluster
from shoal.history.base import About, Entry, EntryType, History
from shoal.objects.errors import ShoalError
from shoal.objects.job import priority_number
from shoal.objects.kind import Kind, Size
from shoal.objects.kinds import JOB
from shoal.objects.meta import Object
from shoal.schedule.explain import explain as in_words
from shoal.server.task_reports import reports_of
from shoal.store.base import SYSTEM, Store

__all__ = ["explanation_of"]

_MOST_AHEAD = 20
_PORTION = 500
_MOST_ENTRIES = 20
_TAKEN = ("Preempted", "Resized", "NodeLost", "NodeDrained", "Refused")
"""Steps of a plan after which a job has less than it wants."""


def explanation_of(
    kind: Kind, obj: Object, *, store: Store, history: History | None, cluster: Cluster | None
) -> Explanation:
    """The explanation of one object; parts that do not answer are left out."""
    about = About(
        kind=kind.name,
        namespace=obj.metadata.namespace if kind.namespaced else "",
        name=obj.metadata.name,
        uid=obj.metadata.uid,
    )
    state = kind.state(obj)
    message, remedy = state.message, state.remedy
    decisions = _entries(history, about, "decision")
    if state.scheduler:
        words = in_words(state.code, dict(state.evidence))
        message, remedy = message or words.sentence, remedy or words.remedy
    elif state.size is not None and not (state.code or message):
        message, remedy = _room_for_more(state.size, decisions)
    return Explanation(
        kind=kind.name,
        namespace=about.namespace,
        name=about.name,
        phase=state.phase,
        code=state.code,
        message=message,
        remedy=remedy,
        evidence=dict(state.evidence),
        since=state.since,
        starts=state.starts,
        ahead=_ahead(store, obj) if state.queued else (),
        tasks=_tasks(cluster, kind, obj),
        decisions=decisions,
        events=_entries(history, about, "event"),
    )


def _room_for_more(size: Size, decisions: tuple[Entry, ...]) -> tuple[str, str]:
    """Why an object that runs holds less than it may have, and what would change it."""
    if size.held >= size.most:
        return "", ""
    runs = f"it runs with {size.held} of at most {size.most} {size.unit}"
    steps = [each for each in decisions if each.reason in ("Started", "Grown", "Slower", *_TAKEN)]
    last = steps[-1] if steps else None
    if last is not None and last.reason == "Slower":
        return f"{runs}: {last.message}", in_words(last.reason, last.data["evidence"]).remedy
    why = "there is no room for more, or its queue has none"
    if last is not None and last.reason in _TAKEN:
        why = last.message
    return f"{runs}: {why}", "it grows by itself when there is room"


def _ahead(store: Store, job: Any) -> tuple[str, ...]:  # Any: only jobs wait in queues
    """Jobs of its queue that wait as well and are tried first: higher priority, then older."""
    metadata = _WaitingMetadata(job.metadata.name, job.metadata.created, job.metadata.namespace)
    own = _order(_Waiting(metadata, _WaitingSpec(job.spec.queue, job.spec.priority)))
    first: list[tuple[int, float, str, str]] = []
    cursor = ""
    while True:
        page = store.list(JOB, actor=SYSTEM, limit=_PORTION, cursor=cursor)
        for record in page.records:
            other = _WAITING_JOB.decode(record.document)
            if other.waits_in(job.spec.queue) and (order := _order(other)) < own:
                first.append(order)
        first = sorted(first)[:_MOST_AHEAD]
        cursor = page.cursor
        if not cursor:
            return tuple(f"{namespace}/{name}" for _, _, namespace, name in first)


class _WaitingMetadata(msgspec.Struct, frozen=True, gc=False):
    name: str
    created: float = 0.0
    namespace: str = "default"


class _WaitingSpec(msgspec.Struct, frozen=True, gc=False):
    queue: str = "default"
    priority: int | str = 0
    suspend: bool = False


class _WaitingStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = "Pending"


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    """As much of a job as its place in the line needs: ten thousand are looked at for one answer."""

    metadata: _WaitingMetadata
    spec: _WaitingSpec
    status: _WaitingStatus = _WaitingStatus()

    def waits_in(self, queue: str) -> bool:
        return self.spec.queue == queue and self.status.phase == "Pending" and not self.spec.suspend


_WAITING_JOB = msgspec.json.Decoder(_Waiting)


def _order(job: _Waiting) -> tuple[int, float, str, str]:
    metadata = job.metadata
    return (-priority_number(job.spec.priority), metadata.created, metadata.namespace, metadata.name)


def _tasks(cluster: Cluster | None, kind: Kind, obj: Object) -> tuple[TaskReport, ...]:
    if cluster is None or kind.tasks != "owned":
        return ()
    try:
        listing = cluster.list()
    except ShoalError:
        return ()  # no node answers: the job's own status still explains it
    return reports_of(cluster, tuple(t for t in listing.tasks if t.spec.job_uid == obj.metadata.uid))


def _entries(history: History | None, about: About, what: EntryType) -> tuple[Entry, ...]:
    if history is None:
        return ()
    return history.entries(types=(what,), about=about, limit=_MOST_ENTRIES, newest=True)
