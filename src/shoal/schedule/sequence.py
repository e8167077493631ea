"""Third stage: the changes as one write per job, in an order that is safe to cut anywhere.

Reservations come first: whoever gives something up does so for a job that is known to get it. What only
gives back, or only says why a job waits, takes nothing. What takes comes after all that it
needs: each write is tried against a ledger of what is free at that point. A job that gives back and
takes in one go is one write if the ledger allows; if not, the giving back of all that are left goes
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, Literal

from shoal.objects.job import Slots
from shoal.objects.ranges import IndexSet
from shoal.schedule.free import Free
from shoal.schedule.give_back import FORCED, Draft, Index
from shoal.schedule.plan import Deny, Grow, JobName, Move, Preempt, Reserve, Shrink, Start, Step, Write
from shoal.schedule.snapshot import Hold

__all__ = ["compact", "sequence"]

Part = Literal["all", "give", "take", "keep"]
"""Of a draft that gives back and takes: both in one write, or each in its own; or nothing but what is
kept for it."""


def sequence(drafts: Sequence[Draft], ledger: Free, refresh: int) -> tuple[Write, ...]:
    """The writes for these drafts, which are in the order of service; `ledger` is what is free before
    the first. Up to `refresh` jobs whose numbers alone have changed are written too."""
    giving = [draft for draft in drafts if draft.lost and not draft.got]
    taking = [draft for draft in drafts if draft.got]
    waiting = [draft for draft in drafts if not draft.lost and not draft.got]
    reserving = [draft for draft in drafts if _news_of_its_place(draft)]
    writes: list[Write] = [_write(draft, "keep") for draft in reserving]
    for draft in giving:
        _free(ledger, draft)
        writes.append(_write(draft))
    whole = list(takewhile(lambda draft: _afford(ledger, draft), taking))
    writes += [_write(draft) for draft in whole]
    parted = taking[len(whole) :]
    for draft in parted:
        if draft.lost:
            _free(ledger, draft)
            writes.append(_write(draft, "give"))
    writes += [_write(draft, "take" if draft.lost else "all") for draft in parted]
    for draft in waiting:
        if draft in reserving:
            continue
        lost_place = bool(draft.row.reserved and not draft.reserved)
        lost_date = draft.row.promised is not None and draft.promised is None
        code_changed = draft.code != draft.row.code or lost_place or lost_date
        stale = bool(draft.code) and draft.evidence != draft.row.evidence and refresh > 0
        if code_changed or stale:
            refresh -= not code_changed
            writes.append(_write(draft))
    return tuple(writes)


def compact(holds: Iterable[Hold]) -> tuple[Slots, ...]:
    """As few Slots as say the same: one per role and node, its indices as ranges."""
    together: dict[tuple[str, str], list[Hold]] = {}
    for hold in sorted(holds, key=lambda hold: (hold.role, hold.index)):
        together.setdefault((hold.role, hold.node), []).append(hold)
    return tuple(
        Slots(
            role=role,
            indices=IndexSet(hold.index for hold in group).text,
            node=node,
            devices=tuple(device for hold in group for device in hold.devices),
        )
        for (role, node), group in together.items()
    )


def _free(ledger: Free, draft: Draft) -> None:
    for hold, _ in draft.lost:
        if not (hold.live or hold.claimed):
            ledger.give_back(hold)


def _afford(ledger: Free, draft: Draft) -> bool:
    """Take what the draft gets, after what it gives back itself; False leaves the ledger as it was."""
    gone = [hold for hold, _ in draft.lost if not (hold.live or hold.claimed)]
    for hold in gone:
        ledger.give_back(hold)
    if ledger.take(draft.got.values()):
        return True
    for back in gone:
        ledger.occupy(back)
    return False


def _write(draft: Draft, part: Part = "all") -> Write:
    row = draft.row
    got = draft.got if part in ("all", "take") else {}
    lost = draft.lost if part in ("all", "give") else []
    steps = tuple(_steps(draft, lost, got, part))
    changed = bool(lost or got)
    return Write(
        job=JobName(namespace=row.namespace, name=row.name, uid=row.uid),
        generation=row.generation,
        allocation=row.allocation + (part == "take"),
        steps=steps,
        slots=compact((*draft.kept.values(), *got.values())) if changed else None,
        reason=_reason(lost, steps) if changed else "",
        code=draft.code,
        evidence=draft.evidence,
        reserved=_reserved(draft),
        promised=draft.promised,
        place=_place(draft),
    )


def _news_of_its_place(draft: Draft) -> bool:
    """It is kept another place, or promised another date or place."""
    if draft.reserved and _reserved(draft) != draft.row.reserved:
        return True
    dated = (draft.promised, _place(draft)) != (draft.row.promised, draft.row.place)
    return draft.promised is not None and dated


def _reserved(draft: Draft) -> tuple[Slots, ...]:
    return compact(draft.reserved.values())


def _place(draft: Draft) -> tuple[Slots, ...]:
    return compact(draft.place.values())


def _steps(
    draft: Draft, lost: list[tuple[Hold, str]], got: dict[Index, Hold], part: Part
) -> Iterable[Step]:
    given, left = dict(got), [pair for pair in lost if _index(pair[0]) not in got]
    emptied = not (draft.kept or got or draft.row.ending)
    for code in dict.fromkeys(code for _, code in left):
        slots = compact(hold for hold, other in left if other == code)
        evidence = _evidence(draft, code, left)
        if emptied and code not in ("Finished", "Shrunk"):
            yield Preempt(slots=slots, code=code, evidence=evidence)
        else:
            yield Shrink(slots=slots, code=code, evidence=evidence)
    moved = [pair for pair in lost if _index(pair[0]) in got]
    for code in dict.fromkeys(code for _, code in moved):
        those = [hold for hold, other in moved if other == code]
        to = [given.pop(_index(hold)) for hold in those]
        yield Move(slots=compact(those), to=compact(to), code=code, evidence=_nodes(moved))
    if given and any(hold.slot for hold in draft.row.holds):
        yield Grow(slots=compact(given.values()))
    elif given:
        yield Start(slots=compact(given.values()))
    if _news_of_its_place(draft) and (part == "keep" or not (lost or got)):
        yield Reserve(slots=_reserved(draft), code=draft.code, evidence=draft.evidence)
    elif draft.code != draft.row.code or not (lost or got):
        yield Deny(code=draft.code, evidence=draft.evidence)


def _reason(lost: list[tuple[Hold, str]], steps: tuple[Step, ...]) -> str:
    """The code that the job controller stops tasks under, if any; else that of the last step."""
    stops = [code for _, code in lost if code != "Finished"]
    if stops:
        return stops[0]
    return next((step.code for step in reversed(steps) if not isinstance(step, Deny)), "")


def _evidence(draft: Draft, code: str, lost: list[tuple[Hold, str]]) -> dict[str, Any]:
    if draft.yielded and code == "Preempted":
        count = sum(each == code for _, each in lost)
        return {"tasks": count, "left": len(draft.kept), "for": draft.yielded}
    if code in draft.why:
        return draft.why[code]
    return _nodes(lost) if code in FORCED else {}


def _nodes(lost: list[tuple[Hold, str]]) -> dict[str, Any]:
    return {"nodes": sorted({hold.node for hold, _ in lost})}


def _index(hold: Hold) -> Index:
    return (hold.role, hold.index)
