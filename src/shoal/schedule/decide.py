"""`decide`: from what a server sees to what it is to write. Pure, and equal input gives equal bytes.

1. Every job gives back what it must or no longer needs (`give_back`).
2. What is left becomes the rows of a decision (`posing`), and the decision is made (`cycle`).
3. Its steps are brought back to the jobs (`carrying`), and become writes in an order that is safe to
   cut anywhere (`sequence`).

A `Decider` remembers what rows came to: one event among ten thousand jobs costs what that event changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.objects.meta import Stamp
from shoal.schedule.carrying import Carrying
from shoal.schedule.core.cycle import Core
from shoal.schedule.cycle.planner import Planner
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Rules
from shoal.schedule.cycle.steps import Deny, Step
from shoal.schedule.cycle.steps import Plan as Steps
from shoal.schedule.free import Free
from shoal.schedule.give_back import Draft, give_back
from shoal.schedule.held import NOWHERE, Held
from shoal.schedule.plan import Plan, Policy
from shoal.schedule.posing import Posing, index_of, node_of
from shoal.schedule.sequence import sequence
from shoal.schedule.snapshot import VERSION, Form, Hold, JobRow, NodeRow, Snapshot

__all__ = ["Decided", "Decider", "Planning", "decide", "planner_for"]


class Planning(Protocol):
    """A core: rows to the plan with every verdict that holds. It remembers rows between decisions, is
    used by one thread, and raises ValueError for rows that contradict each other."""

    rules: Rules

    def plan(self, cluster: Cluster, now: Stamp) -> Steps:
        """What to do now."""
        ...


def planner_for(rules: Rules) -> Planning:
    """The core that `rules` name; server, simulator and replay ask nothing else which one decides."""
    if rules.edition not in _EDITIONS:
        raise ValueError(f"there is no edition {rules.edition} of the scheduling core: 1 and 2 exist")
    return _SecondEdition(rules) if rules.edition == 2 else Planner(rules)


class _SecondEdition:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._core = Core(rules)

    def plan(self, cluster: Cluster, now: Stamp) -> Steps:
        """The decider compares verdicts with those that jobs show already, so it needs all of them."""
        self._core.rules = self.rules
        self._core.plan(cluster, now)
        return self._core.everything


_EDITIONS = (1, 2)


def decide(snapshot: Snapshot, policy: Policy, now: Stamp) -> Plan:
    """What to do now. `snapshot.jobs` must be in the order of `JobRow.order`.

    Raises ValueError for a snapshot of another version, and for rows that contradict each other.
    """
    return Decider().decide(snapshot, policy, now).plan


@dataclass(frozen=True)
class Decided:
    """A decision, as it was posed and answered, and the plan that it came to."""

    cluster: Cluster
    steps: Steps
    plan: Plan


@dataclass(frozen=True)
class _Known:
    """What one job came to when it was seen last."""

    row: JobRow
    form: Form
    jobs: tuple[Job, ...]
    strange: tuple[Job, ...]
    losing: bool
    """It gives something back by itself."""
    passing: bool
    """It will be another though nothing happens."""


class Decider:
    """For one server; not for sharing between threads. Its answers are those of `decide`."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._named: dict[str, str] = {}
        """Name of a row of the decision to the job's uid."""
        self._telling: set[str] = set()
        """Jobs whose status says why they wait, or what is kept for them."""
        self._snapshot: Snapshot | None = None
        self._policy: Policy | None = None
        self._now: Stamp = 0.0
        self._planner: Planning | None = None
        self._nodes: list[NodeRow] = []
        """Those that are not lost, and"""
        self._by_name: dict[str, NodeRow] = {}
        """all."""
        self._node_rows: tuple[Node, ...] = ()
        self._queues: tuple[Queue, ...] = ()
        self._held = Held((), ())

    def decide(self, snapshot: Snapshot, policy: Policy, now: Stamp) -> Decided:
        """What to do now; see `decide`. After an error it has forgotten everything."""
        if snapshot.version != VERSION:
            raise ValueError(
                f"the snapshot was made by version {snapshot.version} of the rows; this is version "
                f"{VERSION}"
            )
        try:
            return self._decide(snapshot, policy, now)
        except BaseException:
            self.__init__()
            raise

    def _decide(self, snapshot: Snapshot, policy: Policy, now: Stamp) -> Decided:
        if now < self._now:  # the clock was set back: what was over may not be over
            self._forget()
        self._now = now
        planner = self._under(policy)
        self._on(snapshot)
        held = self._held
        held.strange.clear()
        posing = Posing(held, snapshot.queues, policy, now)
        drafts = self._pose(snapshot, posing)
        for hold in snapshot.strangers:
            held.stranger(hold, None)
        known = self._known
        strange = [job for row in snapshot.jobs for job in known[row.uid].strange]
        cluster = Cluster(
            nodes=self._node_rows,
            levels=snapshot.levels,
            queues=self._queues,
            jobs=(
                *(job for row in snapshot.jobs for job in known[row.uid].jobs),
                *strange,
                *held.strange,
            ),
            usage=snapshot.usage,
            acted=max([snapshot.acted, *(row.changed for row in snapshot.jobs if not row.ending)])
            or None,
        )
        steps = planner.plan(cluster, now)
        carrying = Carrying(drafts, self._draft, self._named, held.nodes, now)
        told = self._carry(steps.steps, carrying, policy)
        for uid in self._telling:
            if uid not in told:
                carrying.draft(uid)
        self._without_queue(snapshot, carrying)
        self._without_nodes(snapshot, drafts)
        ordered = [drafts[row.uid] for row in snapshot.jobs if row.uid in drafts]
        again = [at for at in (steps.again_at, posing.again_at) if at is not None]
        writes = sequence(ordered, self._ledger(snapshot, ordered), policy.refresh)
        return Decided(cluster, steps, Plan(writes=writes, again_at=min(again, default=None)))

    def _under(self, policy: Policy) -> Planning:
        if self._planner is None or self._planner.rules != policy.rules:
            self._planner = planner_for(policy.rules)
        if self._policy is None or self._policy.regrow_seconds != policy.regrow_seconds:
            self._forget()
        self._policy = policy
        return self._planner

    def _on(self, snapshot: Snapshot) -> None:
        """Where nodes or queues are others, so may be all that was made of jobs there."""
        old = self._snapshot
        if old is None or old.nodes is not snapshot.nodes or old.queues is not snapshot.queues:
            self._nodes = [node for node in snapshot.nodes if not node.lost]
            self._by_name = {node.name: node for node in snapshot.nodes}
            self._node_rows = tuple(node_of(node) for node in self._nodes)
            self._queues = (*snapshot.queues, NOWHERE)
            self._held = Held(self._nodes, snapshot.queues)
            self._forget()
        self._snapshot = snapshot

    def _forget(self) -> None:
        self._known.clear()
        self._named.clear()
        self._telling.clear()

    def _pose(self, snapshot: Snapshot, posing: Posing) -> dict[str, Draft]:
        """Drafts of those that give something back by themselves."""
        known, forms = self._known, snapshot.forms
        drafts: dict[str, Draft] = {}
        for row in snapshot.jobs:
            uid, form = row.uid, forms[row.form]
            before = known.get(uid)
            if before is not None and before.row is row and before.form is form and not before.passing:
                if before.losing:
                    drafts[uid] = give_back(row, form, self._by_name)
                continue
            draft = give_back(row, form, self._by_name)
            strange = self._held.strange
            first, passes = len(strange), posing.passing
            jobs = tuple(posing.jobs_of(draft))
            self._enter(row, form, jobs, tuple(strange[first:]), draft, posing.passing > passes)
            del strange[first:]
            if draft.lost:
                drafts[uid] = draft
        if len(known) > len(snapshot.jobs):
            for uid in known.keys() - {row.uid for row in snapshot.jobs}:
                self._leave(uid)
        return drafts

    def _enter(
        self,
        row: JobRow,
        form: Form,
        jobs: tuple[Job, ...],
        strange: tuple[Job, ...],
        draft: Draft,
        passing: bool,
    ) -> None:
        if row.uid in self._known:
            self._leave(row.uid)
        self._known[row.uid] = _Known(row, form, jobs, strange, bool(draft.lost), passing)
        self._named.update((job.name, row.uid) for job in jobs)
        if row.code or row.reserved or row.promised is not None:
            self._telling.add(row.uid)

    def _leave(self, uid: str) -> None:
        for job in self._known.pop(uid).jobs:
            if self._named.get(job.name) == uid:
                del self._named[job.name]
        self._telling.discard(uid)

    def _draft(self, uid: str) -> Draft:
        """Of a job that gives nothing back by itself."""
        known = self._known[uid]
        return give_back(known.row, known.form, self._by_name)

    def _carry(self, steps: Sequence[Step], carrying: Carrying, policy: Policy) -> set[str]:
        """Whom the steps were about. Who is told what his status says already needs no draft."""
        told: set[str] = set()
        for step in steps:
            uid = self._named.get(step.job)
            if uid is None:
                continue  # what runs though nobody asks for it is told nothing
            told.add(uid)
            row = self._known[uid].row
            old = isinstance(step, Deny) and row.code == step.code
            quiet = old and not (row.reserved or row.avoid or policy.refresh or row.promised is not None)
            if not quiet or index_of(step.job) is not None or carrying.has(uid):
                carrying.carry(step)
        return told

    def _without_queue(self, snapshot: Snapshot, carrying: Carrying) -> None:
        for row in snapshot.jobs:
            if row.queue not in self._held.queues and not row.ending:
                draft = carrying.draft(row.uid)
                if not draft.kept:
                    draft.code, draft.evidence = "QueueMissing", {"queue": row.queue}

    def _without_nodes(self, snapshot: Snapshot, drafts: dict[str, Draft]) -> None:
        """All are lost, which is something else than that there are none."""
        lost = [node.name for node in snapshot.nodes if node.lost]
        for draft in drafts.values() if lost and not self._nodes else ():
            if draft.code == "NoNodes":
                draft.evidence = {**draft.evidence, "lost": lost[:_MOST_NAMES]}

    def _ledger(self, snapshot: Snapshot, drafts: Iterable[Draft]) -> Free:
        """Of the nodes on which somebody gets something."""
        names = {hold.node for draft in drafts for hold in draft.got.values()}
        nodes = [node for node in self._nodes if node.name in names]
        return Free(
            nodes, (hold for hold in _all_holds(snapshot) if hold.node in names) if names else ()
        )


_MOST_NAMES = 5


def _all_holds(snapshot: Snapshot) -> Iterable[Hold]:
    for row in snapshot.jobs:
        yield from row.holds
    yield from snapshot.strangers
