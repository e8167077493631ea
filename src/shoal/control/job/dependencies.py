"""Jobs that wait for other jobs (`spec.after`): how those end, and what follows from it.

A dependency is *met* once its job has ended as asked; that is recorded in the waiting job's status, and
holds whatever becomes of the other job later. A job that ended otherwise, or was deleted before that,
can never meet it: the waiting job then fails. A finished job is kept, also one that is being deleted or
whose time to live is over, until each job that waits for it has recorded its end; so no end is missed.

A name means the job that had it when the waiting job was admitted: admission records its uid in an
annotation. A job that is created later under the same name is another one, so no circle can arise.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from shoal.control.cache import ObjectCache
from shoal.control.job.observe import Observed, StatusDraft
from shoal.control.runner import Key
from shoal.objects.job import FINISHED, Dependency, Job, unmet_dependencies
from shoal.objects.job_kind import dependency_uids

DELETED = "Deleted"
"""How a job ended that was deleted before it had an outcome; beside the phases of finished jobs."""
_MEETS = {
    "success": ("Succeeded",),
    "failure": ("Failed", "Cancelled"),
    "end": (*FINISHED, DELETED),
}
_ENDED = {
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Cancelled": "was cancelled",
    DELETED: "was deleted before it ended",
}
_VERBS = {"success": "succeeds", "failure": "fails", "end": "ends"}
_MOST_NAMED = 3


class Dependents:
    """The jobs that wait for a job, by its key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Key, dict[Key, str]] = {}

    def change(self, old: Job | None, new: Job | None) -> list[Key]:
        """Take a change of a job in; the other jobs that it concerns: those that wait for it, and those
        that it no longer waits for."""
        before, after = _waits_for(old), _waits_for(new)
        job = new or old
        assert job is not None
        with self._lock:
            for key in before - after:
                waiting = self._waiting.get(key, {})
                waiting.pop(job.key, None)
                if not waiting:
                    self._waiting.pop(key, None)
            for key in after:
                self._waiting.setdefault(key, {})[job.key] = dependency_uids(job).get(key[1], "")
            concerned = [*self._waiting.get(job.key, ())]
        if old is not None and new is not None and old.status.phase == new.status.phase:
            concerned = []
        return [*concerned, *(before - after)]

    def wait_for(self, job: Job) -> bool:
        """Whether a job has not recorded yet how this one ended."""
        with self._lock:
            uids = self._waiting.get(job.key, {}).values()
            return any(uid in ("", job.metadata.uid) for uid in uids)


def _waits_for(job: Job | None) -> set[Key]:
    if job is None or not job.spec.after or job.status.phase in FINISHED:
        return set()
    return {(job.metadata.namespace, each.job) for each in unmet_dependencies(job)}


def ends_of(job: Job, jobs: ObjectCache[Job]) -> dict[str, str]:
    """How the jobs that it waits for ended, of those that did: a phase, or `Deleted`."""
    if not job.spec.after or job.status.phase in FINISHED:
        return {}
    uids, ends = dependency_uids(job), dict[str, str]()
    for each in unmet_dependencies(job):
        key = (job.metadata.namespace, each.job)
        # the cache may be behind a write of another server
        other = jobs.get(key) or jobs.refresh(key)
        if other is None:
            if jobs.quarantined(key) is None:
                ends[each.job] = DELETED
        elif uids.get(each.job, other.metadata.uid) != other.metadata.uid:
            ends[each.job] = DELETED
        elif other.status.phase in FINISHED:
            ends[each.job] = other.status.phase
    return ends


def resolve_dependencies(observed: Observed, draft: StatusDraft, now: float) -> str:
    """Record the dependencies that are met; a sentence when one can never be, else nothing."""
    job, never = observed.job, ""
    met = list(draft.dependencies_met)
    for each in unmet_dependencies(job):
        end = observed.ends.get(each.job)
        if end is None:
            continue
        if end in _MEETS[each.on]:
            met.append(each.job)
        elif not never:
            wanted = f"it starts only after job/{each.job} {_VERBS[each.on]}"
            never = f"job/{each.job} {_ENDED[end]}, and {wanted}"
    draft.dependencies_met = tuple(met)
    if job.spec.after and not draft.eligible and len(met) == len(job.spec.after):
        draft.eligible = now
    return never


def waiting_message(after: Iterable[Dependency], met: Iterable[str]) -> str:
    """What a job waits for: `it starts after job/a succeeds and job/b ends`; empty for nothing."""
    done = frozenset(met)
    waits = [f"job/{each.job} {_VERBS[each.on]}" for each in after if each.job not in done]
    if not waits:
        return ""
    if (more := len(waits) - _MOST_NAMED) > 0:
        waits = [*waits[:_MOST_NAMED], f"{more} more job{'s' if more > 1 else ''} end as asked"]
    *first, last = waits
    return f"it starts after {', '.join(first)} and {last}" if first else f"it starts after {last}"
