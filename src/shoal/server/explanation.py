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
from shoal.objects.job import FINISHED, Job
from shoal.objects.kind import Kind, Size
from shoal.objects.kinds import JOB
from shoal.objects.meta import Object
from shoal.schedule.explain import explain as in_words
from shoal.server.task_reports import reports_of

if TYPE_CHECKING:
    from shoal.control.controllers import ControllerContext

__all__ = ["explanation_of"]

_MOST_AHEAD = 20
_MOST_ENTRIES = 20
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
    state = kind.state(obj)
    message, remedy, evidence = state.message, state.remedy, dict(state.evidence)
    decisions = _entries(history, about, "decision")
    if state.scheduler:
        evidence = _without_ended(control, evidence)
        words = in_words(state.code, evidence)
        message = message if message and evidence == state.evidence else words.sentence
        remedy = words.remedy
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
        evidence=evidence,
        since=state.since,
        starts=state.starts,
        ahead=_ahead(control, obj) if state.queued else (),
        tasks=_tasks(control, cluster, kind, obj),
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


def _ahead(control: ControllerContext | None, obj: Object) -> tuple[str, ...]:
    """Jobs that the last decision considered before this one, and that still wait."""
    if control is None:
        return ()
    jobs = control.cache(JOB)
    waiting = (key for key in control.order.before(obj.key) if _waits(jobs.get(key)))
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
    control: ControllerContext | None, cluster: Cluster | None, kind: Kind, obj: Object
) -> tuple[TaskReport, ...]:
    if control is None or cluster is None or kind.tasks != "owned":
        return ()
    return reports_of(cluster, control.tasks.of_job(obj.metadata.uid))


def _entries(history: History | None, about: About, what: EntryType) -> tuple[Entry, ...]:
    if history is None:
        return ()
    return history.entries(types=(what,), about=about, limit=_MOST_ENTRIES, newest=True)
