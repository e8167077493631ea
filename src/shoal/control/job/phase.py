"""The part of the status that people read: phase, its reason, counts and conditions."""

from __future__ import annotations

from shoal.control.job.book import Book
from shoal.control.job.seen import Seen, Slot
from shoal.objects.elastic import is_coordinator
from shoal.objects.job import Phase
from shoal.objects.task import Placement

__all__ = ["describe_phase"]


def describe_phase(seen: Seen, book: Book, wanted: dict[Slot, Placement], now: float) -> None:
    """Write phase, running counts and conditions of an undecided job into the book."""
    running = [
        (task.spec.role, task.spec.index) for task in seen.tasks if task.phase in ("Running", "Stopping")
    ]
    for slot in running:
        book.running[slot[0]] = book.running.get(slot[0], 0) + 1
    starts = [task.started for task in seen.tasks if task.started]
    if starts and not book.started:
        # nodes stamp with clocks of their own
        book.started = min(now, max(seen.job.metadata.created, min(starts)))
    if book.finished:
        return
    live = [task for task in seen.tasks if task.phase != "Ended"]
    book.phase, book.reason, book.message = _phase(seen, book, wanted, set(running), bool(live))
    _conditions(seen, book, wanted, now)


def _phase(
    seen: Seen, book: Book, wanted: dict[Slot, Placement], running: set[Slot], live: bool
) -> tuple[Phase, str, str]:  # fmt: skip
    spec = seen.job.spec
    silent = book.waits_for(seen)
    said = f"node {silent} does not answer; if it is gone for good: shoal lost node/{silent}"
    if spec.suspend and not live and not silent:
        return "Suspended", "Suspended", "shoal resume lets it go on"
    before = seen.job.status.phase
    if live or silent:
        all_run = bool(wanted) and running >= wanted.keys()
        at_work = any(not is_coordinator(spec, role) for role, _ in running)
        leaves = bool(running) and (spec.suspend or spec.cancelled or seen.deleted)
        goes_on = all_run or (before == "Running" and (at_work or leaves)) or (at_work and _apart(seen))
        phase: Phase = "Running" if goes_on else "Starting"
        return phase, "WaitingForNode" if silent else "", said if silent else ""
    return ("Starting", "", "") if wanted else ("Pending", "", "")


def _apart(seen: Seen) -> bool:
    return seen.job.spec.array is not None


def _conditions(seen: Seen, book: Book, wanted: dict[Slot, Placement], now: float) -> None:
    stale = [
        task
        for task in seen.tasks
        if task.phase != "Ended"
        and task.spec.incarnation != book.current((task.spec.role, task.spec.index))
    ]
    preempting = bool(stale) and not wanted and not seen.job.spec.suspend
    resizing = bool(stale) and bool(wanted)
    restarting = bool(wanted) and not wanted.keys() <= book.members().keys() and book.attempt > 0
    reason = seen.job.status.allocation.reason or "Stopping"
    book.condition("Preempting", preempting, reason if preempting else "", "", now)
    book.condition("Resizing", resizing, "MembersChange" if resizing else "", "", now)
    book.condition("Restarting", restarting, "Backoff" if restarting else "", "", now)
