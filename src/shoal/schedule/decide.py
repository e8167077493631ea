"""`decide`: from what is seen to what is to be done. Pure, and equal input gives equal bytes.

1. Every job gives back what it must or no longer needs (`give_back`).
2. Capacity that is free is given out in order (`fill`), under quotas (`quota`), where it fits (`room`);
   what does not fit takes over what lower priorities can spare (`reclaim`), or gets its reason
   (`reasons`).
3. The changes become writes in an order that is safe to cut anywhere (`sequence`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from shoal.objects.meta import Stamp
from shoal.schedule.fill import Fill
from shoal.schedule.give_back import Draft, give_back
from shoal.schedule.plan import Plan, Policy
from shoal.schedule.quota import Quotas
from shoal.schedule.reclaim import Reclaim
from shoal.schedule.room import Room
from shoal.schedule.sequence import sequence
from shoal.schedule.snapshot import Hold, JobRow, Snapshot

__all__ = ["decide"]


def decide(snapshot: Snapshot, policy: Policy, now: Stamp) -> Plan:
    """What to do now. `snapshot.jobs` must be in the order of `JobRow.order`."""
    nodes = {node.name: node for node in snapshot.nodes}
    lost = frozenset(node.name for node in snapshot.nodes if node.lost)
    drafts = {
        row.uid: give_back(row, snapshot.forms[row.form], nodes)
        for row in snapshot.jobs
        if row.holds or row.ending
    }
    quotas = Quotas(snapshot.queues, lost)
    for draft in drafts.values():
        quotas.count(draft.row, _still_held(draft))
    held = (hold for draft in drafts.values() for hold in _still_held(draft))
    room = Room(snapshot.nodes, (*held, *snapshot.strangers))
    fill = Fill(snapshot.nodes, room, quotas, policy, now, Reclaim(snapshot, drafts))
    for _, level in groupby(snapshot.jobs, key=lambda row: row.priority):
        served: list[Draft] = []
        for row in level:
            if row.ending:
                continue
            known = fill.known(row)
            if known is not None:
                fresh = policy.refresh == 0 or known[1] == row.evidence
                if known[0] == row.code and fresh:
                    continue
            draft = drafts.get(row.uid)
            if draft is None:
                draft = drafts[row.uid] = Draft(row, snapshot.forms[row.form])
            if known is not None:
                draft.code, draft.evidence = known
                continue
            fill.serve(draft)
            served.append(draft)
        for draft in served:
            fill.extend(draft)
    order = _in_order(snapshot.jobs, drafts)
    writes = sequence(order, Room(snapshot.nodes, _all_holds(snapshot)), policy.refresh)
    return Plan(writes=writes, again_at=fill.again_at)


def _still_held(draft: Draft) -> list[Hold]:
    """What the job holds once its writes are done: what it keeps, and what has not gone yet."""
    gone = {id(hold) for hold, _ in draft.lost if not (hold.live or hold.claimed)}
    return [hold for hold in draft.row.holds if id(hold) not in gone]


def _in_order(rows: Iterable[JobRow], drafts: dict[str, Draft]) -> list[Draft]:
    return [drafts[row.uid] for row in rows if row.uid in drafts]


def _all_holds(snapshot: Snapshot) -> Iterable[Hold]:
    for row in snapshot.jobs:
        yield from row.holds
    yield from snapshot.strangers
