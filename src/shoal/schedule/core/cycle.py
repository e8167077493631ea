"""The decision: rows in, changed actions out.

1. Jobs give back what they may not keep: suspended, out of wall time, drained, beyond a new maximum.
2. Jobs with reserved slots start there, or elsewhere on free capacity, or keep them.
3. Pending jobs are served in order: start, reserve what is releasing, reclaim, or wait; the first
   blocked ones get reservations, which those after them respect.
4. Jobs below their minimum for too long are released.
5. Elastic jobs grow and are rebalanced.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shoal.objects.meta import Stamp
from shoal.schedule.allot import Allot
from shoal.schedule.core import explain
from shoal.schedule.core.elastic import Sizes
from shoal.schedule.core.order import Order
from shoal.schedule.core.placement import place
from shoal.schedule.core.policies import Following
from shoal.schedule.core.preemption import make_room
from shoal.schedule.core.reservation import Profile, Reservation
from shoal.schedule.core.session import Base, Session
from shoal.schedule.core.state import JobState, Slot
from shoal.schedule.core.usage import Usage
from shoal.schedule.cycle.peers.named import as_asked, peer
from shoal.schedule.cycle.rows import Cluster, Rules, Task
from shoal.schedule.cycle.steps import Deny, Plan, Reserve
from shoal.schedule.taints import tolerates

__all__ = ["Core", "plan"]

RESERVATIONS = 32
_DEFAULT_DEPTH = 5000
_SOON_SECONDS = 1.0
_MOST_NAMED = 5
_RECLAIMS = 24
"""Claims that are tried in one decision; others follow in the next, at once."""
_AT_ONCE_SECONDS = 0.05


def plan(cluster: Cluster, rules: Rules, now: Stamp) -> Plan:
    """One decision without memory, everything that holds included."""
    core = Core(rules)
    core.plan(cluster, now)
    return core.everything


class Core:
    """Remembers between decisions what rows come to, and verdicts that were published."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.everything = Plan()
        """The last plan with all verdicts and reservations that hold, changed or not."""
        self._base: Base | None = None
        self._codes: dict[str, str] = {}
        self._tried: set[str] = set()
        """Claims of the decisions since one left none, so that each has its turn."""

    def plan(self, cluster: Cluster, now: Stamp) -> Plan:
        """Changed actions. Raises ValueError for rows that contradict each other."""
        cluster = as_asked(cluster, self.rules)
        policy = peer(cluster, self.rules)
        base, self._base = self._base, None
        if base is None or not base.carries(cluster):
            base = Base(cluster)
        else:
            base.update(cluster)
        half_life = self.rules.half_life_seconds
        usage = Usage(cluster.usage, base.queues.index, base.jobs.values(), half_life, now)
        session = Session(base, self.rules, now)
        cycle = _Cycle(session, usage, self._tried)
        try:
            cycle.run(policy)
            self.everything = cycle.plan()
            if not cycle.carries:
                self._tried.clear()
        finally:
            session.close()
        self._base = base
        return self._changed(cluster)

    def forget_rows(self) -> None:
        """The next decision counts all rows again; usage and published verdicts stay."""
        self._base = None

    def _changed(self, cluster: Cluster) -> Plan:
        rows = {job.name: job for job in cluster.jobs}
        steps: list[Any] = []
        codes: dict[str, str] = {}
        for step in self.everything.steps:
            row = rows[step.job]
            if isinstance(step, Deny):
                codes[step.job] = step.code
                kept = row.reserved or row.promised is not None
                if self._codes.get(step.job) == step.code and not kept:
                    continue
            elif isinstance(step, Reserve):
                codes[step.job] = step.code
                same = set(step.tasks) == set(row.reserved) and step.at in (None, row.promised)
                if same and (step.at is None or set(step.place) == set(row.place)):
                    continue
            steps.append(step)
        self._codes = codes
        return Plan(steps=tuple(steps), again_at=self.everything.again_at, order=self.everything.order)


class _Cycle:
    def __init__(self, session: Session, usage: Usage, tried: set[str]) -> None:
        self.session, self.usage = session, usage
        self.rules, self.now = session.rules, session.now
        self.profile = Profile(session)
        depth = self.rules.depth
        self.most = RESERVATIONS if depth == _DEFAULT_DEPTH else depth
        self.sizes = Sizes(session, self.profile)
        self.denied: dict[str, tuple[str, dict[str, Any]]] = {}
        self.reserved: dict[str, Reserve] = {}
        self.order: list[str] = []
        self.moments: list[Stamp] = []
        self._full: dict[int, tuple[str, dict[str, Any]]] = {}
        """Kinds of jobs that found no capacity in this decision, and why."""
        self._undated: set[int] = set()
        self._never = session.base.never
        self._starving: set[int] = set()
        self._overtaken: set[str] = set()
        self._protected: set[tuple[int, str]] = set()
        self._tried = tried
        self.carries = False
        """Claims are left for the next decision."""
        self._reclaims = 0
        self._blocked = 0

    def run(self, policy: Allot | None = None) -> None:
        """By Shoal's own order, or by another policy."""
        session = self.session
        self._give_back()
        pending: list[JobState] = []
        if policy is None:
            self._overtake()
        for job in session.jobs.values():
            if job.row.suspended or any(each.job == job.name for each in session.evictions):
                if job.row.reserved:
                    session.release(job)
                    self.denied[job.name] = ("Suspended", {})
                continue
            if job.name in session.started or job.name in session.grown:
                continue
            if job.row.reserved and job.name not in self._overtaken and self._settle(job):
                continue
            if not job.present or any(job.missing()):
                pending.append(job)
        if policy is not None:
            self._follow(policy, pending)
            return
        self._protect(pending)
        order = Order(session, self.usage, pending)
        while (job := order.next()) is not None:
            self.order.append(job.name)
            self._serve(job)
            order.served(job)
        self._release_stale(pending)
        self._recall()
        self.sizes = Sizes(session, self.profile)
        self.sizes.run()

    def _follow(self, policy: Allot, pending: Sequence[JobState]) -> None:
        allowed: list[JobState] = []
        for job in sorted(pending, key=lambda each: (each.row.created, each.name)):
            reason = self._reason_at_once(job)
            counts = job.missing() if job.present else job.gang()
            load = job.load(counts, new=not job.row.tasks)
            refusal = self.session.refused(job, load, now=False)
            if reason is None and refusal is not None and refusal.code != "Kept":
                reason = refusal.code, explain.numbers(self.session, refusal)
            if reason is None:
                allowed.append(job)
            else:
                self.denied[job.name] = reason
        self.order = [job.name for job in allowed]
        following = Following(self.session, policy, allowed)
        following.run()
        for job in allowed:
            if job.name in following.victims:
                self.denied[job.name] = ("Preempting", {"waitsFor": following.victims[job.name]})
            elif job.name in self.session.reserved:
                self.denied[job.name] = ("Departing", {})
            elif job.name not in self.session.started and not job.present:
                self.denied[job.name] = self._why(job, job.gang())
        self._release_stale(pending)
        again = following.again_at()
        self.moments += [] if again is None else [again]

    # 1. giving back

    def _give_back(self) -> None:
        session, now = self.session, self.now
        drained = {
            node.name: [taint for taint in node.taints if taint.effect == "NoExecute"]
            for node in session.nodes.rows
        }
        drained = {name: taints for name, taints in drained.items() if taints}
        for job in session.jobs.values():
            row = job.row
            if not job.present:
                continue
            if row.suspended:
                session.evict(job, job.present, "Suspended")
                continue
            if row.wall_seconds is not None:
                over = row.since + row.wall_seconds
                if now >= over:
                    session.evict(job, job.present, "WallTime", wallSeconds=row.wall_seconds)
                    continue
                self.moments.append(over)
            over_most: list[Task] = []
            for role in row.roles:
                mine = sorted((t for t in job.present if t.role == role.name), key=lambda t: t.index)
                over_most += mine[role.maximum :]
            if over_most:
                session.evict(job, over_most, "Shrunk")
            if drained:
                self._drain(job, drained)

    def _drain(self, job: JobState, drained: dict[str, list[Any]]) -> None:
        going = [
            task
            for task in self.session.tasks(job)
            if task.node in drained
            and not all(
                tolerates(job.row.roles[job.role(task.role)].tolerations, taint)
                for taint in drained[task.node]
            )
        ]
        if going:
            nodes = sorted({task.node for task in going})
            self.session.evict(job, going, "NodeDrained", nodes=nodes)

    # 2. slots that were reserved

    def _settle(self, job: JobState) -> bool:
        """Start on the reserved slots, or elsewhere, or keep them; False: it is served like others."""
        session = self.session
        slots = session.release(job)
        counts = [0] * len(job.requests)
        for slot in slots:
            counts[slot.role] += 1
        have = [there + more for there, more in zip(job.counts(), counts, strict=True)]
        if any(job.missing(have)) or any(
            there > most for there, most in zip(have, job.maximums, strict=True)
        ):
            return False
        usable = all(slot.node >= 0 and session.nodes.open[slot.node] for slot in slots)
        if not usable:
            return False
        load = job.load(counts, new=not job.row.tasks)
        stopping = any(task.stopping for task in job.row.tasks)
        clear = session.refused(job, load, now=True) is None and not session.lacks_licence(job)
        if not stopping and clear:
            mark = session.free.mark()
            fine = True
            for slot in slots:
                if not session.free.fits(slot.node, job.requests[slot.role], slot.gpus):
                    fine = False
                    break
                session.free.change(slot.node, job.requests[slot.role], slot.gpus, -1)
            if fine:
                session.start(job, slots)
                return True
            session.free.rollback(mark)
            found = place(session.nodes, session.free, job, counts)
            if found is not None:
                session.start(job, found)
                return True
        if session.refused(job, load, now=False) is not None:
            return False
        mark = session.later.mark()
        for slot in slots:
            if not session.later.fits(slot.node, job.requests[slot.role], slot.gpus):
                session.later.rollback(mark)
                return False
            session.later.change(slot.node, job.requests[slot.role], slot.gpus, -1)
        session.reserve(job, slots, job.row.reserved)
        if not job.present or any(job.missing()):
            self.denied[job.name] = ("Departing", {})
        return True

    def _overtake(self) -> None:
        """A job of a higher class starts on idle capacity that is reserved for lower ones."""
        session = self.session
        kept = [job for job in session.jobs.values() if job.row.reserved and not job.row.suspended]
        if not kept:
            return
        lowest = min(job.row.priority for job in kept)
        above = [
            job
            for job in session.jobs.values()
            if not job.row.tasks and not job.row.reserved and not job.row.suspended
            if job.row.priority > lowest
        ]
        for job in sorted(
            above, key=lambda each: (-each.row.priority, each.row.waiting_since, each.name)
        ):
            if self._reason_at_once(job) is not None:
                continue
            mark = session.mark()
            below = [each for each in kept if each.row.priority < job.row.priority]
            counts = job.gang()
            load = job.load(counts, new=True)
            entitled = session.queues.claims_nominal(job.queue, load, session.queues.stays) > 0
            below = [
                each
                for each in below
                if each.name not in self._overtaken and (entitled or not self._in_nominal(each))
            ]
            slots = None
            released: list[str] = []
            for other in (None, *sorted(below, key=lambda each: (each.row.priority, -each.row.created))):
                if other is not None:
                    session.release(other)
                    released.append(other.name)
                if session.refused(job, load, now=True) is None:
                    slots = place(session.nodes, session.free, job, counts)
                if slots is not None:
                    break
            if slots is None or not released:
                session.rollback(mark)
                continue
            session.start(job, slots)
            self._overtaken.update(released)

    def _in_nominal(self, job: JobState) -> bool:
        """Whether what is reserved for the job is within its queue's nominal."""
        queues = self.session.queues
        load = job.load(job.gang(), new=True)
        return queues.within(job.queue, queues.stays[job.queue], load > 0)

    # 3. pending jobs

    def _protect(self, pending: Sequence[JobState]) -> None:
        """Published reservations stand before newcomers are served: one of each queue and user."""
        promised = [job for job in pending if job.row.promised is not None and job.row.place]
        for job in sorted(
            promised, key=lambda each: (-each.row.priority, each.row.promised or 0.0, each.name)
        ):
            key = (job.queue, job.row.user)
            if key in self._protected or len(self.profile.reservations) >= self.most:
                continue
            if self._date(job, job.gang()):
                self._protected.add(key)

    def _serve(self, job: JobState) -> None:
        reason = self._reason_at_once(job)
        if reason is not None:
            self.denied[job.name] = reason
            return None
        reserved = any(each.job is job for each in self.profile.reservations)
        known = None if job.present or reserved else self._full.get(job.kind)
        if known is None:  # capacity only shrinks: what failed for an equal job fails again
            for counts in [job.missing()] if job.present else job.compositions():
                if self._start_or_reserve(job, counts):
                    return None
        counts = job.missing() if job.present else job.gang()
        if reserved:
            return self._note_reserved(job)
        if known is None and self._reclaim(job, counts):
            return None
        if known is None:
            known = self._why(job, counts)
            if not job.present:
                self._full[job.kind] = known
        self._blocked += 1
        self._wait(job, counts, known)
        return None

    def _reason_at_once(self, job: JobState) -> explain.Reason | None:
        session = self.session
        if job.kind not in self._never:
            self._never[job.kind] = explain.never(session, job) or explain.budget(session, job)
        if self._never[job.kind] is not None and not job.present:
            return self._never[job.kind]
        if any(task.stopping for task in job.row.tasks) and not self._indices_left(job):
            return "Stopping", {}
        if not job.row.preemptible:
            load = job.load(job.gang(), new=True)
            use = session.queues.stays
            leaf = job.queue
            nominal = session.queues.nominal[leaf]
            if nominal.any() and not session.queues.claims_nominal(leaf, load, use):
                over = np.flatnonzero((load > 0) & (use[leaf] + load > nominal))
                at = int(over[0]) if len(over) else len(load) - 2
                return "NotPreemptible", {
                    "resource": session.queues.resources[at],
                    "nominal": float(nominal[at]),
                    "used": float(use[leaf][at]),
                    "asked": float(load[at]),
                }
        return None

    def _indices_left(self, job: JobState) -> bool:
        """Whether the job may get what it lacks beside its tasks that are still stopping."""
        if not job.present:
            return False
        there = [0] * len(job.requests)
        for task in job.row.tasks:
            there[job.role(task.role)] += 1
        pairs = zip(there, job.missing(), job.maximums, strict=True)
        return all(not lacks or held + lacks <= most for held, lacks, most in pairs)

    def _start_or_reserve(self, job: JobState, counts: list[int]) -> bool:
        session = self.session
        load = job.load(counts, new=not job.row.tasks)
        if session.lacks_licence(job) or session.refused(job, load, now=False) is not None:
            return False
        entitled = session.queues.claims_nominal(job.queue, load, session.queues.stays) > 0
        limits = self.profile.limits(job, entitled=entitled)
        if self.profile.reservations and not self.profile.quota_allows(job, load, entitled=entitled):
            return False
        if session.refused(job, load, now=True) is None:
            slots = place(session.nodes, session.free, job, counts, limits=limits)
            if slots is not None:
                session.start(job, slots)
                self.profile.took(job, slots, entitled=entitled)
                self.profile.drop(job)
                return True
        slots = place(session.nodes, session.later, job, counts, limits=limits)
        if slots is None:
            return False
        session.reserve(job, slots)
        self.profile.took(job, slots, entitled=entitled)
        self.profile.drop(job)
        self.denied[job.name] = ("Departing", {})
        return True

    def _reclaim(self, job: JobState, counts: list[int]) -> bool:
        session = self.session
        if job.name in self._tried or session.lacks_licence(job):
            return False
        if self._reclaims >= _RECLAIMS:
            self.carries = True
            return False
        self._reclaims += 1
        self._tried.add(job.name)
        turns = bool(self.rules.minimum_run_seconds) and self._starves(job)
        turns = turns and job.row.wall_seconds is None
        before = len(session.evictions)
        mark = session.mark()
        slots = make_room(
            session,
            job,
            counts,
            moves=self.rules.consolidate and self._blocked == 0,
            turns=turns,
        )
        if slots is None:
            return False
        load = job.load(counts, new=not job.row.tasks)
        if not self.profile.respects(job, slots, load):
            session.rollback(mark)
            return False
        session.reserve(job, slots)
        self.profile.drop(job)
        moved = {each.job for each in session.evictions[before:] if each.to is not None}
        victims = sorted({each.job for each in session.evictions[before:]})
        code = "Consolidating" if moved and moved == set(victims) else "Preempting"
        for each in session.evictions[before:]:
            victim = session.jobs[each.job]
            if each.to is not None:
                session.reserved[victim.name] = session.moved(victim, each)
                session.sync(slot.node for slot in each.to)
                self.denied[victim.name] = ("Departing", {})
            elif (
                turns
                and victim.queue == job.queue
                and victim.row.priority == job.row.priority
                and each.whole
            ):
                each.code = "TurnOver"
        self.denied[job.name] = (code, {"waitsFor": victims})
        return True

    def _starves(self, job: JobState) -> bool:
        due = job.row.waiting_since + self.rules.starving_seconds
        if self.now >= due:
            return True
        self.moments.append(due)
        return False

    def _why(self, job: JobState, counts: list[int]) -> explain.Reason:
        session = self.session
        never = self._never[job.kind]
        if never is not None:  # it runs below its minimum, and may never reach it
            return never
        load = job.load(counts, new=not job.row.tasks)
        refusal = session.refused(job, load, now=False)
        if refusal is not None:
            return refusal.code, explain.numbers(session, refusal)
        if name := session.lacks_licence(job):
            evidence = {"shared": name, "asked": job.row.shared[name], "left": session.licences[name]}
            return "SharedLacking", evidence
        mark = session.later.mark()
        fits = place(session.nodes, session.later, job, counts) is not None
        session.later.rollback(mark)
        if fits:
            first = [each.job.name for each in self.profile.reservations if each.job is not job]
            return "Behind", {"behind": first[:_MOST_NAMED]}
        return explain.lack_of_room(session, job, counts)

    # waiting

    def _wait(self, job: JobState, counts: list[int], why: explain.Reason) -> None:
        if job.present:
            self.denied[job.name] = why
            return
        if len(self.profile.reservations) < self.most and job.kind not in self._undated:
            if self._date(job, counts):
                self._note_reserved(job, why)
                return
            self._undated.add(job.kind)
        elif len(self.profile.reservations) >= self.most:
            why = ("BeyondDepth", {"depth": self.most}) if why[0] in ("NoRoom", "Behind") else why
        self.denied[job.name] = why
        if self._starves(job) and job.queue not in self._starving and why[0] != "Kept":
            self._accumulate(job, counts)

    def _date(self, job: JobState, counts: list[int]) -> bool:
        """A reservation, where its start can be computed: on the nodes it was promised if it can."""
        session = self.session
        keep = [
            Slot(job.role(task.role), session.nodes.index[task.node], task.gpus)
            for task in sorted(job.row.place, key=lambda each: (each.role, each.index))
            if task.node in session.nodes.index
        ]
        found = self.profile.date(job, counts)
        promised = math.inf if job.row.promised is None else job.row.promised
        if keep and (found is None or found[0] > promised):
            kept = self.profile.date(job, counts, keep=keep)
            if kept is not None and (found is None or kept[0] < found[0]):
                found = kept
        if found is None:
            found = self.profile.date(job, counts, recall=True)
        if found is None:
            return False
        at, slots = found
        load = job.load(counts, new=not job.row.tasks)
        within = session.queues.claims_nominal(job.queue, load, session.queues.stays) > 0
        starving = self._starves(job)
        if starving and not within:
            within_now = job.queue not in self._starving
            self._starving.add(job.queue)
            starving = within_now
        entitled = within or starving
        until = at + job.length
        self.profile.add(
            Reservation(
                job, at, until, slots, load, published=self._holds(job, entitled), entitled=entitled
            )
        )
        return True

    def _holds(self, job: JobState, entitled: bool) -> bool:
        """Whether no claim within another queue's nominal can displace it: nothing of that is unused, so
        that a claim needs capacity to come back first."""
        if entitled:
            return True
        queues = self.session.queues
        others = [at for at in range(len(queues.rows)) if at not in queues.paths[job.queue]]
        return not (queues.stays[others] < queues.nominal[others] - 1e-9)[:, :-1].any()

    def _note_reserved(self, job: JobState, why: explain.Reason = ("Dated", {})) -> None:
        found = next(each for each in self.profile.reservations if each.job is job)
        if math.isinf(found.until) and found.at == -math.inf:
            return
        if not found.published:
            self.denied[job.name] = (
                why if why[0] != "Dated" else ("NoRoom", {"wanted": {}, "fitting": {}})
            )
            self.moments.append(found.at)
            return
        at = max(found.at, self.now + _SOON_SECONDS) if found.at <= self.now else found.at
        tasks = tuple(self.session.number(job, found.slots))
        self.reserved[job.name] = Reserve(job=job.name, code="Dated", at=at, place=tasks)
        self.moments += [found.at, found.at - self.rules.notice_seconds]

    def _accumulate(self, job: JobState, counts: list[int]) -> None:
        """Capacity is kept for a starving job without a date, on the nodes that have most of it."""
        session = self.session
        book = session.later.copy()
        slots = self._gathering(job, counts)
        if slots is None:
            return
        self._starving.add(job.queue)
        spare: dict[int, Any] = {}
        for slot in slots:
            book.change(slot.node, job.requests[slot.role], slot.gpus, -1)
        for slot in slots:
            spare[slot.node] = (
                np.maximum(book.amounts[slot.node], 0),
                np.maximum(book.slots[slot.node], 0),
            )
        load = job.load(counts, new=True)
        self.profile.reservations.append(
            Reservation(
                job, self.now, math.inf, slots, load, published=False, entitled=True, spare=spare
            )
        )
        self.denied[job.name] = ("Aside", self.denied[job.name][1])

    def _gathering(self, job: JobState, counts: list[int]) -> list[Slot] | None:
        """Nodes with the most free capacity that could hold the gang if what runs there ended."""
        session, nodes = self.session, self.session.nodes
        empty = session.later.copy()
        wanted = list(counts)
        order = np.lexsort((np.arange(len(nodes.rows)), -session.later.slots.sum(axis=1), ~nodes.open))
        mask = np.zeros(len(nodes.rows), np.bool_)
        for node in order.tolist():
            if not nodes.open[node]:
                continue
            mask[node] = True
            empty.put(node, nodes.amounts[node], nodes.slots[node])
            fits = sum(
                int(empty.counts(job.requests[role])[mask].sum()) >= count
                for role, count in enumerate(wanted)
                if count
            )
            if fits == sum(1 for count in wanted if count):
                found = place(nodes, empty, job, wanted, within=mask)
                if found is not None:
                    return found
        return None

    # 4. and after

    def _release_stale(self, pending: Sequence[JobState]) -> None:
        session = self.session
        for job in pending:
            if not job.present or job.name in session.grown or job.name in session.reserved:
                continue
            since = job.row.below_since
            since = self.now if since is None else since
            if not session.tasks(job):
                continue
            if self.now >= since + self.rules.stale_seconds:
                least = sum(job.gang())
                session.evict(job, session.tasks(job), "BelowMinimum", minimum=least)
                self.denied.pop(job.name, None)
            else:
                self.moments.append(since + self.rules.stale_seconds)

    def _recall(self) -> None:
        """Elastic surplus on nodes of a reservation goes in time for its start."""
        session = self.session
        soon = self.now + self.rules.notice_seconds
        for each in self.profile.reservations:
            if each.at > soon or (math.isinf(each.until) and each.at == self.now):
                continue
            nodes = {slot.node for slot in each.slots}
            for other in list(session.jobs.values()):
                if other is each.job or not other.row.preemptible or not session.tasks(other):
                    continue
                if other.name in session.grown or other.name in session.started:
                    continue
                present = {(task.role, task.index) for task in session.tasks(other)}
                going = [
                    task
                    for task in other.surplus()
                    if session.nodes.index.get(task.node, -1) in nodes
                    and (task.role, task.index) in present
                    and self._in_the_way(each, other, task)
                ]
                if going:
                    session.evict(other, going, "Resized", "")

    def _in_the_way(self, reservation: Reservation, other: JobState, task: Task) -> bool:
        node = self.session.nodes.index[task.node]
        return any(
            slot.node == node and (not slot.gpus or not task.gpus or set(slot.gpus) & set(task.gpus))
            for slot in reservation.slots
        )

    # the plan

    def plan(self) -> Plan:
        session = self.session
        steps: list[Any] = []
        for name, tasks in session.reserved.items():
            code, evidence = self.denied.get(name, ("Departing", {}))
            steps.append(Reserve(job=name, code=code, evidence=evidence, tasks=tuple(tasks)))
        steps += [step for name, step in self.reserved.items() if name not in session.reserved]
        steps += session.steps()
        told = {step.job for step in steps if isinstance(step, Reserve)}
        told |= session.started.keys() | session.grown.keys()
        for name, (code, evidence) in self.denied.items():
            if name not in told:
                steps.append(Deny(job=name, code=code, evidence=evidence))
        return Plan(steps=tuple(_safe(steps)), again_at=self._again_at(), order=tuple(self.order))

    def _again_at(self) -> Stamp | None:
        session = self.session
        moments = list(self.moments)
        if self.carries:
            moments.append(self.now + _AT_ONCE_SECONDS)
        if self.sizes.again_at is not None:
            moments.append(self.sizes.again_at)
        if self.rules.minimum_run_seconds:
            turn = self.rules.minimum_run_seconds
            moments += [
                (job.row.since if job.present else self.now) + turn
                for job in session.jobs.values()
                if job.row.wall_seconds is None and (job.present or job.name in session.started)
            ]
        for name in session.started:
            row = session.jobs[name].row
            if row.wall_seconds is not None:
                moments.append(self.now + row.wall_seconds)
        return min((each for each in moments if each > self.now), default=None)


def _safe(steps: Sequence[Any]) -> Iterator[Any]:
    yield from (step for step in steps if isinstance(step, Reserve))
    yield from (step for step in steps if not isinstance(step, Reserve | Deny))
    yield from (step for step in steps if isinstance(step, Deny))
