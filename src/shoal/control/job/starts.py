"""Which slots lack a task, and the task to start there.

A start is prepared by writing the index's node into the status; only then is the node asked. So a
node that falls silent in between is known to hold the index, and nothing is started a second time
elsewhere until it answers or is declared lost.
"""

from __future__ import annotations

from shoal.control.job.actions import Start
from shoal.control.job.book import Book
from shoal.control.job.seen import Seen, Slot, fixed_membership, scope_of
from shoal.objects.elastic import is_coordinator
from shoal.objects.job import Role
from shoal.objects.task import Placement, TaskSpec, task_name

__all__ = ["missing_starts"]


def missing_starts(
    seen: Seen, book: Book, wanted: dict[Slot, Placement], now: float
) -> tuple[Start | None, float | None]:
    """The start to ask for, each member given its node in the book; and seconds until a backoff ends.

    `Cluster.start` is idempotent by name, so a start that was cut short is simply asked for again.
    """
    if _refused(seen) or not wanted:
        return None, None
    fresh = fixed_membership(seen.job) and not _started(seen, book)
    find = _gang if fresh or scope_of(seen.job) == "Gang" else _single
    ready = find(seen, book, wanted)
    delayed = {
        slot: wait
        for slot in ready
        if book.current(slot) > 1
        and slot not in book.nodes
        and (wait := _restart_after(seen, book, slot) - now) > 0
    }
    ready = [slot for slot in ready if slot not in delayed]
    again = min(delayed.values()) if delayed else None
    if not ready or (delayed and scope_of(seen.job) == "Gang"):
        return None, again
    book.attempt = _attempt(seen, book)
    for slot in ready:
        book.nodes[slot] = wanted[slot].node
    specs = tuple(_spec(seen, book, slot, wanted[slot]) for slot in ready)
    together = seen.job.spec.array is None
    return Start(specs, seen.job.status.allocation.id, together), again


def _restart_after(seen: Seen, book: Book, slot: Slot) -> float:
    """The coordinator has a backoff of its own: without it the others can do nothing."""
    if is_coordinator(seen.job.spec, slot[0]):
        return book.role_restart_after.get(slot[0], 0.0)
    return book.restart_after


def _attempt(seen: Seen, book: Book) -> int:
    """The number of this start's attempt. Elastic jobs count on when nothing of them was left: what is
    on its way out belongs to the attempt before, and speaks for it until something new starts."""
    begun = bool(book.attempt) and seen.job.spec.runtime == "elastic" and not book.members()
    return book.attempt + 1 if begun else max(book.attempt, 1)


def _gang(seen: Seen, book: Book, wanted: dict[Slot, Placement]) -> list[Slot]:
    """All wanted slots or none; none while anything of an older attempt is left."""
    if _stale_slots(seen, book, wanted) or any(not _answers(seen, p.node) for p in wanted.values()):
        return []
    return [] if _started(seen, book) >= wanted.keys() else sorted(wanted)


def _single(seen: Seen, book: Book, wanted: dict[Slot, Placement]) -> list[Slot]:
    """Wanted slots on nodes that answer, with neither a task of their own nor an older one there."""
    busy = _started(seen, book) | _stale_slots(seen, book, wanted)
    return [
        slot
        for slot, place in sorted(wanted.items())
        if slot not in busy
        and _answers(seen, place.node)
        and not seen.unknown(book.nodes.get(slot, place.node))
    ]


def _answers(seen: Seen, node: str) -> bool:
    return node not in seen.silent and node not in seen.lost


def _started(seen: Seen, book: Book) -> set[Slot]:
    """Slots whose current incarnation has run: it still does, or its end is not counted yet."""
    return {
        slot
        for task in seen.tasks
        if task.phase != "Admitted"
        and task.spec.incarnation == book.current(slot := (task.spec.role, task.spec.index))
        and slot not in book.outcomes
    }


def _stale_slots(seen: Seen, book: Book, wanted: dict[Slot, Placement]) -> set[Slot]:
    return {
        slot
        for task in seen.tasks
        if task.phase != "Ended"
        and (
            (slot := (task.spec.role, task.spec.index)) not in wanted
            or task.spec.incarnation != book.current(slot)
        )
    }


def _refused(seen: Seen) -> bool:
    refusal = seen.job.status.refusal
    return refusal is not None and refusal.allocation == seen.job.status.allocation.id


def _spec(seen: Seen, book: Book, slot: Slot, place: Placement) -> TaskSpec:
    job, incarnation = seen.job, book.current(slot)
    role = next((role for role in job.spec.roles if role.name == slot[0]), Role())
    return TaskSpec(
        namespace=job.metadata.namespace,
        name=task_name(job.metadata.name, job.metadata.uid, slot[0], slot[1], incarnation),
        job=job.metadata.name,
        job_uid=job.metadata.uid,
        role=slot[0],
        index=slot[1],
        attempt=book.attempt,
        incarnation=incarnation,
        placement=place,
        command=(*role.command, *role.args),
        env=role.env,
        working_directory=role.working_directory,
        cpu=role.resources.cpu,
        cpu_limit=role.resources.cpu_limit,
        memory=role.resources.memory,
        ports={port.name: port.port for port in role.ports},
        isolation=job.spec.isolation,
    )
