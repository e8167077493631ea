"""Who belongs to the current attempt, after the scheduler has spoken.

Members whose slot was taken away, moved, or lost with its node become stale: they are stopped and,
should a slot come back, start again under the next incarnation. A gang of fixed size cannot change:
any difference between its members and its slots makes the whole attempt stale. Where tasks restart one
by one but are told once of all the others (TensorFlow's clusters), a new size or place does the same.
"""

from __future__ import annotations

from shoal.control.job.actions import Note
from shoal.control.job.book import Book
from shoal.control.job.seen import Seen, Slot, fixed_membership, scope_of
from shoal.objects.task import Placement

__all__ = ["keep_members", "lose_members", "wanted_slots"]


def lose_members(seen: Seen, book: Book) -> list[Note]:
    """Make stale what a lost node held, with its gang: one failure of the infrastructure.

    Comes before ends are counted, for its peers' failures are no more than the echo of the loss.
    """
    lost = {slot: node for slot, node in book.members().items() if node in seen.lost}
    if not lost or seen.job.spec.cancelled or seen.deleted:
        for slot in lost:
            book.next_incarnation(slot)
        return []
    book.infrastructure_failures += 1
    if scope_of(seen.job) == "Gang" or fixed_membership(seen.job):
        book.next_attempt()
    else:
        for slot in lost:
            book.next_incarnation(slot)
    nodes = ", ".join(sorted(set(lost.values())))
    return [Note("NodeLost", f"node {nodes} was declared lost with {len(lost)} tasks", warning=True)]


def wanted_slots(seen: Seen, book: Book) -> dict[Slot, Placement]:
    """Where a task is to run now: the allocation, less what has its outcome; nothing while the job is
    decided, deleted, cancelled or suspended."""
    spec = seen.job.spec
    if book.finished or seen.deleted or spec.cancelled or spec.suspend:
        return {}
    return {slot: place for slot, place in seen.placed.items() if slot not in book.outcomes}


def keep_members(seen: Seen, book: Book, wanted: dict[Slot, Placement]) -> list[Note]:
    """Make stale what no longer belongs; burns no budget.

    The members of a cancelled or deleted job stay members until they have ended: nothing follows them.
    """
    if seen.job.spec.cancelled or seen.deleted:
        return []
    members, gang = book.members(), scope_of(seen.job) == "Gang"
    gone = [slot for slot, node in members.items() if _moved(wanted.get(slot), node)]
    gone += [slot for slot in _other_devices(seen, book, wanted) if slot not in gone]
    joined = [slot for slot in wanted if slot not in members]
    if not gang:  # an index that has run before is starting again, and the others know it
        joined = [slot for slot in joined if book.current(slot) == 1 and fixed_membership(seen.job)]
    if not members or not (gone or joined):
        return []
    notes = [_note(seen, len(gone))] if gone else []
    if gang or fixed_membership(seen.job):
        book.next_attempt()
        return notes
    for slot in gone:
        book.next_incarnation(slot)
    if not book.members() and not wanted and seen.job.spec.runtime != "elastic":
        book.attempt += 1
    return notes


def _note(seen: Seen, gone: int) -> Note:
    reason = "Suspended" if seen.job.spec.suspend else seen.job.status.allocation.reason or "Stopping"
    return Note(
        reason, "1 task gives up its place" if gone == 1 else f"{gone} tasks give up their places"
    )


def _moved(place: Placement | None, node: str) -> bool:
    return place is None or place.node != node


def _other_devices(seen: Seen, book: Book, wanted: dict[Slot, Placement]) -> list[Slot]:
    return [
        slot
        for task in seen.tasks
        if task.phase != "Ended"
        and (slot := (task.spec.role, task.spec.index)) in wanted
        and task.spec.incarnation == book.current(slot)
        and task.spec.placement.devices != wanted[slot].devices
    ]
