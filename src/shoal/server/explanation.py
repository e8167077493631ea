"""Why an object is in the state it is in, put together from what its writers left in its status.

Nothing is decided again here: code, numbers and the order of waiting jobs are the scheduler's own, the
reason of a phase is the job controller's. Jobs that have ended since the decision are left out of them.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from shoal.client.reports import Explanation, TaskReport
from shoal.cluster.base import Cluster
from shoal.history.base import About, Entry, EntryType, History
from shoal.objects.elastic import elastic_role
from shoal.objects.job import FINISHED, Job
from shoal.objects.kinds import JOB, Kind
from shoal.objects.meta import Object
from shoal.objects.node import Node
from shoal.objects.queue import Queue
from shoal.objects.ranges import IndexSet
from shoal.schedule.explain import explain as in_words
from shoal.server.task_reports import reports_of

if TYPE_CHECKING:
    from shoal.control.controllers import ControllerContext

__all__ = ["explanation_of"]

_MOST_AHEAD = 20
_MOST_ENTRIES = 20
_WAITING = ("Pending", "Starting", "Running")
_NAMES_OF_JOBS = ("holders", "waitsFor")
_TAKEN = ("Preempted", "Resized", "NodeLost", "NodeDrained", "Refused")
"""Steps of a plan after which a job has less than it wants."""


def explanation_of(
    kind: Kind,
    obj: Object,
    *,
    history: History | None,
    cluster: Cluster | None,
    control: ControllerContext | None,
) -> Explanation:
    """The explanation of one object; components that are not up yet are left out."""
    about = About(
        kind=kind.name,
        namespace=obj.metadata.namespace if kind.namespaced else "",
        name=obj.metadata.name,
        uid=obj.metadata.uid,
    )
    phase, code, message, remedy, evidence, since = _state(control, obj)
    decisions = _entries(history, about, "decision")
    if isinstance(obj, Job) and phase == "Running" and not (code or message):
        message, remedy = _room_for_more(obj, decisions)
    return Explanation(
        kind=kind.name,
        namespace=about.namespace,
        name=about.name,
        phase=phase,
        code=code,
        message=message,
        remedy=remedy,
        evidence=evidence,
        since=since,
        starts=obj.status.scheduling.promised if isinstance(obj, Job) and phase == "Pending" else None,
        ahead=_ahead(control, obj) if isinstance(obj, Job) and code and phase in _WAITING else (),
        tasks=_tasks(control, cluster, obj),
        decisions=decisions,
        events=_entries(history, about, "event"),
    )


def _state(
    control: ControllerContext | None, obj: Object
) -> tuple[str, str, str, str, dict[str, object], float]:
    """Phase, code, message, remedy, evidence, since."""
    if isinstance(obj, Job):
        return _job_state(control, obj)
    if isinstance(obj, Node):
        ready = next((c for c in obj.status.conditions if c.type == "Ready"), None)
        phase = "Lost" if obj.spec.lost else "Ready" if ready and ready.status == "True" else "NotReady"
        if obj.spec.unschedulable:
            phase += ", cordoned"
        if ready is None:
            return phase, "", "the node has not been heard of yet", "", {}, 0.0
        return phase, ready.reason, ready.message, "", {}, ready.changed
    if isinstance(obj, Queue):
        status = obj.status
        message = f"{status.running} of its jobs run and {status.pending} wait"
        return "", "", message, "", {}, status.oldest_pending
    return "", "", "", "", {}, 0.0


def _job_state(
    control: ControllerContext | None, job: Job
) -> tuple[str, str, str, str, dict[str, object], float]:
    status, held = job.status, job.status.scheduling
    if held.code and status.phase in _WAITING:
        evidence = _without_ended(control, held.evidence)
        words = in_words(held.code, evidence)
        message = held.message if held.message and evidence == held.evidence else words.sentence
        return status.phase, held.code, message, words.remedy, evidence, held.since
    return status.phase, status.reason, status.message, "", {}, status.finished or status.started


def _room_for_more(job: Job, decisions: tuple[Entry, ...]) -> tuple[str, str]:
    """Why an elastic job that runs has fewer tasks than it may have, and what would change it."""
    if job.spec.runtime != "elastic":
        return "", ""
    role = elastic_role(job.spec)
    slots = [each.indices for each in job.status.allocation.slots if each.role == role.name]
    held = sum(len(IndexSet.parse(indices)) for indices in slots)
    if held >= role.replicas:
        return "", ""
    runs = f"it runs with {held} of at most {role.replicas} tasks of role {role.name}"
    steps = [each for each in decisions if each.reason in ("Started", "Grown", "Slower", *_TAKEN)]
    last = steps[-1] if steps else None
    if last is not None and last.reason == "Slower":
        return f"{runs}: {last.message}", in_words(last.reason, last.data["evidence"]).remedy
    why = "there is no room for more, or its queue has none"
    if last is not None and last.reason in _TAKEN:
        why = last.message
    return f"{runs}: {why}", "it grows by itself when there is room"


def _ahead(control: ControllerContext | None, job: Job) -> tuple[str, ...]:
    """Jobs that the last decision considered before this one, and that still wait."""
    if control is None:
        return ()
    jobs = control.cache(JOB)
    waiting = (key for key in control.order.before(job.key) if _waits(jobs.get(key)))
    return tuple("/".join(key) for key in islice(waiting, _MOST_AHEAD))


def _waits(job: Job | None) -> bool:
    return (
        job is not None and job.status.phase == "Pending" and not _is_over(job) and not job.spec.suspend
    )


def _is_over(job: Job | None) -> bool:
    return job is None or job.spec.cancelled or job.status.phase in FINISHED


def _without_ended(control: ControllerContext | None, evidence: dict[str, Any]) -> dict[str, Any]:
    """The evidence without holders that have ended since the decision: it is written again only when its
    code changes."""
    if control is None:
        return evidence
    jobs = control.cache(JOB)

    def ended(name: str) -> bool:
        namespace, _, short = name.partition("/")
        return _is_over(jobs.get((namespace, short)))

    now = {
        key: [name for name in value if not ended(name)] if key in _NAMES_OF_JOBS else value
        for key, value in evidence.items()
    }
    if "also" in now:
        now["also"] = [_without_ended(control, each) for each in now["also"]]
    return now


def _tasks(
    control: ControllerContext | None, cluster: Cluster | None, obj: Object
) -> tuple[TaskReport, ...]:
    if control is None or cluster is None or not isinstance(obj, Job):
        return ()
    return reports_of(cluster, control.tasks.of_job(obj.metadata.uid))


def _entries(history: History | None, about: About, what: EntryType) -> tuple[Entry, ...]:
    if history is None:
        return ()
    return history.entries(types=(what,), about=about, limit=_MOST_ENTRIES, newest=True)
