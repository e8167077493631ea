"""One pass over a job: what is seen and the time give the actions, in an order that is safe to cut.

1. Without the finalizer nothing starts: a job with slots gets it first.
2. Ends that count go into the book; then the success rule, limits and cancellation may decide.
3. Members without a slot become stale; slots without a member become starts.
4. One status write carries all of that. After it: acknowledge stale ends, stop stale tasks, start.
5. A deleted job is let go once nothing of it is left on any node.
"""

from __future__ import annotations

from shoal.cluster.base import StopReason, Task
from shoal.control.job.actions import (
    Acknowledge,
    Action,
    AddFinalizer,
    Decision,
    DeleteJob,
    Forget,
    Note,
    PatchStatus,
    RemoveFinalizer,
    Start,
    Stop,
)
from shoal.control.job.book import Book
from shoal.control.job.ends import Verdict, count_ends, lost_too_often, slot_of
from shoal.control.job.members import keep_members, lose_members, wanted_slots
from shoal.control.job.nodehours import count_nodes
from shoal.control.job.phase import describe_phase
from shoal.control.job.seen import FINALIZER, Seen, Slot, scope_of
from shoal.control.job.starts import missing_starts
from shoal.control.job.verdict import decided, seconds_until_limit
from shoal.objects.elastic import is_coordinator
from shoal.objects.task import Placement

__all__ = ["decide"]


def decide(seen: Seen, now: float) -> Decision:
    """What to do next for the job. Pure: equal arguments give equal decisions."""
    has_finalizer = FINALIZER in seen.job.metadata.finalizers
    if not has_finalizer and not seen.deleted and not seen.terminal and seen.placed:
        return Decision((AddFinalizer(),))
    book, notes = Book(seen.job), list[Note]()
    book.correct_stamps(now)
    count_nodes(seen, book, now)
    start: Start | None = None
    waits: list[float | None] = []
    if not seen.terminal:
        notes, start, waits = _carry_on(seen, book, now)
    wanted = wanted_slots(seen, book)
    describe_phase(seen, book, wanted, now)
    actions: list[Action] = []
    fields = book.fields()
    idle = seen.job.status.phase == "Pending" and set(fields) <= {"observedGeneration"}
    if fields and not idle:  # a job that only waits is not written to
        actions.append(PatchStatus(fields))
    actions += notes
    actions += _leave(seen, book, wanted)
    if start is not None:
        actions.append(start)
    actions += _let_go(seen, book, has_finalizer, now, waits)
    times = [wait for wait in waits if wait is not None]
    return Decision(tuple(actions), min(times) if times else None)


def _carry_on(seen: Seen, book: Book, now: float) -> tuple[list[Note], Start | None, list[float | None]]:
    notes = lose_members(seen, book)
    verdict = lost_too_often(seen, book, notes)
    if verdict is None:
        verdict, ends = count_ends(seen, book, now)
        notes += ends
    verdict = verdict or decided(seen, book, now)
    if verdict is not None:
        _close(book, verdict, now)
        notes.append(Note(verdict.phase, verdict.message or _closing(book), verdict.phase == "Failed"))
        return notes, None, []
    wanted = wanted_slots(seen, book)
    notes += keep_members(seen, book, wanted)
    before = book.members()
    start, wait = missing_starts(seen, book, wanted, now)
    if start is not None and book.members() != before:  # else a start that was cut short is carried on
        notes.append(_started_note(book, start))
    return notes, start, [wait, seconds_until_limit(seen, book, now)]


def _close(book: Book, verdict: Verdict, now: float) -> None:
    book.phase, book.reason, book.message = verdict.phase, verdict.reason, verdict.message
    book.finished = now
    for kind in ("Preempting", "Resizing", "Restarting"):
        book.condition(kind, False, "", "", now)
    task = verdict.task
    if task is not None and task.outcome is not None:
        book.exit_code, book.decided_by = task.outcome.exit_code, task.spec.name
    elif verdict.phase == "Succeeded":
        book.exit_code = 0


def _closing(book: Book) -> str:
    restarts = f" after {book.failures} restarts" if book.failures else ""
    return f"finished in attempt {book.attempt}{restarts}"


def _started_note(book: Book, start: Start) -> Note:
    specs = start.group
    nodes = ", ".join(sorted({spec.placement.node for spec in specs}))
    again = any(spec.incarnation > 1 for spec in specs)
    return Note(
        "Started" if not again else "Restarted",
        f"attempt {book.attempt}: {len(specs)} {'tasks' if len(specs) > 1 else 'task'} on {nodes}",
    )


def _leave(seen: Seen, book: Book, wanted: dict[Slot, Placement]) -> list[Action]:
    """Acknowledge ends that are recorded, and stop what should not run."""
    actions: list[Action] = []
    keep_rest = seen.job.spec.clean_up == "None" and book.phase in ("Succeeded", "Failed")
    for task in sorted(seen.tasks, key=lambda task: task.spec.name):
        slot = slot_of(task)
        current = task.spec.incarnation == book.current(slot) and slot not in book.outcomes
        if task.phase == "Ended":
            if not current or book.finished:
                actions.append(Acknowledge(task))
        elif not (current and slot in wanted) and not _may_stay(seen, task, wanted, keep_rest):
            reason = _why(seen, book, task)
            if task.stop_reason is None:
                actions.append(Stop(task.spec.key, float(seen.job.spec.grace_period), reason))
    return actions


def _may_stay(seen: Seen, task: Task, wanted: dict[Slot, Placement], keep_rest: bool) -> bool:
    """The rest of a decided job may be left to end by itself. A coordinator never would: it goes last,
    for those that have notice leave in order only while it is there."""
    spec = seen.job.spec
    if not is_coordinator(spec, task.spec.role):
        return keep_rest and not seen.deleted
    others = (each for each in seen.tasks if not is_coordinator(spec, each.spec.role))
    ends = not any(not is_coordinator(spec, role) for role, _ in wanted)
    return ends and any(each.phase != "Ended" for each in others)


def _why(seen: Seen, book: Book, task: Task) -> StopReason:
    spec = seen.job.spec
    if seen.deleted:
        return "Deleted"
    limits: dict[str, StopReason] = {
        "WallTimeExceeded": "WallTime",
        "NodeHoursExceeded": "NodeHours",
        "IdleTimeout": "IdleTimeout",
    }
    if book.phase == "Failed" and book.reason in limits:
        return limits[book.reason]
    if book.finished:
        return "Cancelled" if book.phase == "Cancelled" else "JobFinished"
    if spec.cancelled:
        return "Cancelled"
    if spec.suspend:
        return "Suspended"
    if slot_of(task) in seen.placed:
        return "GangRestart" if scope_of(seen.job) == "Gang" else "Fenced"
    reasons: dict[str, StopReason] = {"Shrunk": "Shrunk", "NodeDrained": "NodeDrained"}
    return reasons.get(seen.job.status.allocation.reason, "Preempted")


def _let_go(
    seen: Seen, book: Book, has_finalizer: bool, now: float, waits: list[float | None]
) -> list[Action]:
    """What follows once the job is decided or deleted and nothing of it is left."""
    left = bool(seen.tasks) or bool(book.waits_for(seen))
    if seen.deleted:
        if (
            left or not has_finalizer
        ):  # outputs stay unless the clean-up says All: deleting a Job loses no model
            return []
        return [Forget(outputs=seen.job.spec.clean_up == "All"), RemoveFinalizer()]
    if not book.finished or not seen.terminal or seen.tasks:
        return []
    actions: list[Action] = [Forget(outputs=True)] if seen.job.spec.clean_up == "All" else []
    ttl = seen.job.spec.ttl_after_finished
    if ttl is None:
        return actions
    wait = book.finished + float(ttl) - now
    waits.append(max(0.0, wait))
    return [*actions, DeleteJob()] if wait <= 0 else actions
