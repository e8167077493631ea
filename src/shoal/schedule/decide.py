"""`decide`: from what a server sees to what it is to write. Pure, and equal input gives equal bytes.

1. Every job gives back what it must or no longer needs (`give_back`).
2. What is left becomes the rows of a decision (`posing`), and the decision is made (`cycle`).
3. Its steps are brought back to the jobs (`carrying`), and become writes in an order that is safe to
   cut anywhere (`sequence`).
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.objects.meta import Stamp
from shoal.schedule.carrying import Carrying
from shoal.schedule.cycle.planner import plan as planned
from shoal.schedule.cycle.rows import Cluster, Job
from shoal.schedule.free import Free
from shoal.schedule.give_back import give_back
from shoal.schedule.plan import Plan, Policy
from shoal.schedule.posing import NOWHERE, Posing, index_of, node_of
from shoal.schedule.sequence import sequence
from shoal.schedule.snapshot import VERSION, Hold, Snapshot

__all__ = ["decide"]


def decide(snapshot: Snapshot, policy: Policy, now: Stamp) -> Plan:
    """What to do now. `snapshot.jobs` must be in the order of `JobRow.order`.

    Raises ValueError for a snapshot of another version, and for rows that contradict each other.
    """
    if snapshot.version != VERSION:
        raise ValueError(
            f"the snapshot was made by version {snapshot.version} of the rows; this is version {VERSION}"
        )
    return _Decision(snapshot, policy, now).plan()


class _Decision:
    def __init__(self, snapshot: Snapshot, policy: Policy, now: Stamp) -> None:
        self._snapshot, self._policy, self._now = snapshot, policy, now
        self._nodes = [node for node in snapshot.nodes if not node.lost]
        all_nodes = {node.name: node for node in snapshot.nodes}
        self._drafts = {
            row.uid: give_back(row, snapshot.forms[row.form], all_nodes) for row in snapshot.jobs
        }

    def plan(self) -> Plan:
        snapshot, policy = self._snapshot, self._policy
        queues = {queue.name for queue in snapshot.queues}
        posing = Posing(self._nodes, snapshot.queues, policy, self._now)
        rows: list[Job] = []
        named: dict[str, tuple[str, int | None]] = {}
        for uid, draft in self._drafts.items():
            for job in posing.jobs_of(draft):
                rows.append(job)
                named[job.name] = (uid, index_of(job.name))
        for hold in snapshot.strangers:
            posing.stranger(hold)
        cluster = Cluster(
            nodes=tuple(node_of(node) for node in self._nodes),
            levels=snapshot.levels,
            queues=(*snapshot.queues, NOWHERE),
            jobs=(*rows, *posing.strange),
        )
        decision = planned(cluster, policy.rules, self._now)
        carrying = Carrying(self._drafts, named, self._nodes, self._now)
        for step in decision.steps:
            carrying.carry(step)
        self._without_queue(queues)
        self._without_nodes()
        again = [at for at in (decision.again_at, posing.again_at) if at is not None]
        drafts = list(self._drafts.values())
        ledger = Free(self._nodes, _all_holds(snapshot))
        return Plan(writes=sequence(drafts, ledger, policy.refresh), again_at=min(again, default=None))

    def _without_queue(self, queues: set[str]) -> None:
        for draft in self._drafts.values():
            row = draft.row
            if row.queue not in queues and not row.ending and not draft.kept:
                draft.code, draft.evidence = "QueueMissing", {"queue": row.queue}

    def _without_nodes(self) -> None:
        """All are lost, which is something else than that there are none."""
        lost = [node.name for node in self._snapshot.nodes if node.lost]
        for draft in self._drafts.values() if lost and not self._nodes else ():
            if draft.code == "NoNodes":
                draft.evidence = {**draft.evidence, "lost": lost[:_MOST_NAMES]}


_MOST_NAMES = 5


def _all_holds(snapshot: Snapshot) -> Iterable[Hold]:
    for row in snapshot.jobs:
        yield from row.holds
    yield from snapshot.strangers
