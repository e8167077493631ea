"""A job's trace as a sequence of what people, the scheduler and the job controller did, in order.

The store's log is that order, for each status write is tested against the spec that it was decided on.
Which ends a status write counted follows from the exit codes in it: they are different for each start of
each index. It cannot be told from the ends' own stamps, for two nodes may be heard in another order.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.objects.job import Allocation, JobSpec, Refusal
from tests.scenarios.storm.progress import Progress, Slot, is_gang, slots_of
from tests.scenarios.storm.trace import End, JobTrace, Version

__all__ = ["Allocated", "Deleted", "Edited", "Moment", "Wrote", "moments_of"]


@dataclass(frozen=True)
class Edited:
    """A person changed the spec."""

    before: Progress
    spec: JobSpec


@dataclass(frozen=True)
class Allocated:
    """The scheduler changed the slots. `taken`: those that it took back."""

    before: Progress
    allocation: Allocation
    slots: dict[Slot, str]
    taken: frozenset[Slot]


@dataclass(frozen=True)
class Deleted:
    """A person asked for the job to be gone."""

    before: Progress


@dataclass(frozen=True)
class Wrote:
    """The job controller wrote the status: it counted these ends in this order, gave these incarnations
    to their nodes, or noted that a node refused. `lost`: nodes that were declared so then."""

    before: Progress
    after: Progress
    phase: str
    reason: str
    ended: tuple[End, ...] = ()
    joined: frozenset[tuple[Slot, int]] = frozenset()
    refusal: Refusal | None = None
    lost: frozenset[str] = frozenset()


Moment = Edited | Allocated | Deleted | Wrote


def moments_of(trace: JobTrace) -> list[Moment]:
    """All that concerns the job's counters."""
    ends = {(end.slot, end.incarnation): end for end in trace.ends}
    found: list[Moment] = []
    for old, new in zip(trace.versions, trace.versions[1:], strict=False):
        before, after = old.job, new.job
        was, now = Progress.of(before), Progress.of(after)
        if after.metadata.generation != before.metadata.generation:
            found.append(Edited(was, after.spec))
        elif after.status.allocation.id != before.status.allocation.id:
            slots = slots_of(after)
            taken = slots_of(before).keys() - slots.keys() - was.outcomes.keys()
            found.append(Allocated(was, after.status.allocation, slots, frozenset(taken)))
        elif after.metadata.deleted and not before.metadata.deleted:
            found.append(Deleted(was))
        elif after.status.writers.get("job") != before.status.writers.get("job"):
            refusal = after.status.refusal
            joined = {(slot, now.incarnation(slot)) for slot in now.members}
            joined -= {(slot, was.incarnation(slot)) for slot in was.members}
            found.append(
                Wrote(
                    was,
                    now,
                    after.status.phase,
                    after.status.reason,
                    tuple(_counted(was, now, new, ends)),
                    frozenset(joined),
                    refusal if refusal != before.status.refusal else None,
                    frozenset(new.lost),
                )
            )
    return found


def _counted(was: Progress, now: Progress, new: Version, ends: dict[tuple[Slot, int], End]) -> list[End]:
    """The ends that this status write counted, in the order in which it did."""
    candidates: list[End] = []
    bereft = {slot for slot, node in was.nodes.items() if node in new.lost}
    ending = new.job.spec.cancelled or bool(new.job.metadata.deleted)
    if bereft and is_gang(new.job) and not ending:
        return []  # the loss comes first, and makes the whole attempt stale
    for (slot, incarnation), end in ends.items():
        if slot in bereft:
            continue
        current = was.incarnation(slot) == incarnation and slot not in was.outcomes
        moved = now.incarnation(slot) > incarnation or slot in now.outcomes
        if not (current and moved) or end.outcome is None or end.ended > new.at:
            continue
        if now.exit_codes.get(slot) == end.outcome.exit_code:
            candidates.append(end)
    candidates.sort(key=lambda end: (end.ended, end.slot))
    if not (is_gang(new.job) and now.attempt > was.attempt):
        return candidates
    # a gang: the first end that makes it start again is the last that counts
    again = [end for end in candidates if not end.well]
    news = [end for end in again if was.exit_codes.get(end.slot) != now.exit_codes.get(end.slot)]
    last = (news or again or [None])[0]
    well = [end for end in candidates if end.well]
    return well if last is None else [*(end for end in well if end.ended <= last.ended), last]
