"""Evictions and moves that complete a gang: candidates by node, within the rights of the claim.

The claim is within nominal or beyond it (`Claim`). Candidates are units: single tasks of elastic
surplus, then whole jobs. For each node the cheapest units that let a task fit are taken in a dry run;
jobs that find another place in the same dry run move, the others are lost. Nothing is evicted for a gang
that stays incomplete.

Rights are computed for all units at once, as usage is before the claim. Evictions only take rights
away, so what has none at first is never looked at; what is taken is judged again in the dry run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.schedule.core.placement import place
from shoal.schedule.core.queues import Refusal
from shoal.schedule.core.session import Eviction, Session, held_seconds
from shoal.schedule.core.state import WHOLE, JobState, Request, Slot, fitting
from shoal.schedule.core.units import Unit, Units
from shoal.schedule.cycle.rows import Task

__all__ = ["Claim", "make_room"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_SLACK = 1e-9
_MOST_NODES = 48
"""Candidate nodes that one task of a claim looks at."""
_MOST_DOMAINS = 16
"""Domains that a claim could be in, of which the one with fewest restarts is taken."""


class Claim:
    """The rights of one job against what others hold."""

    def __init__(self, session: Session, job: JobState, counts: Sequence[int], *, turns: bool) -> None:
        self.session, self.job = session, job
        self.counts = list(counts)
        self.turns = turns
        self.before = session.queues.stays.copy()
        self.load = job.load(counts, new=not session.tasks(job))
        self.asks: Bools = self.load > _SLACK
        queues = session.queues
        path = queues.paths[job.queue]
        self.path = path
        self._lower: dict[tuple[int, int], Floats] = {}
        self._priorities = sorted({priority for _, priority in session.base.classes})
        use = self._equal_or_higher()
        self.flags = [queues.within(each, use[each] + self.load, self.asks) for each in path]
        self.share = [queues.share(each, queues.stays[each] + self.load) for each in path]
        lacks = np.clip(queues.nominal[job.queue] - queues.stays[job.queue], 0.0, self.load)
        self.cured: Floats = self.load if any(self.flags) else lacks
        """Of its queue's nominal."""

    def _equal_or_higher(self) -> dict[int, Floats]:
        """Usage of each queue of the path without lower classes, and without the surplus of equal
        ones, which nominal covers after minimums."""
        session, job = self.session, self.job
        extra = _surplus(session, job)
        stays = session.queues.stays
        return {
            queue: stays[queue] - self._below(queue, job.row.priority) - extra for queue in self.path
        }

    def _below(self, queue: int, priority: int) -> Floats:
        """Usage of a queue by lower classes."""
        found: Floats = np.zeros(len(self.load))
        for each in self._priorities:
            if each < priority and (held := self.session.base.classes.get((queue, each))) is not None:
                found = found + held
        return found

    @property
    def within_nominal(self) -> bool:
        """In its own queue, or one above it."""
        return any(self.flags)

    def may_take(self, victim: JobState, load: Floats, *, surplus: bool) -> bool:
        """Whether the claim has a right to so much of the victim, as usage is in the dry run."""
        session, job = self.session, self.job
        queues = session.queues
        mine, theirs = job.row.priority, victim.row.priority
        if victim.queue == job.queue:
            return theirs < mine or (theirs == mine and (surplus or self.turns))
        if queues.fenced(job.queue, victim.queue):
            return False
        below, beneath = queues.common(job.queue, victim.queue)
        if not below or not beneath:
            return theirs < mine
        for each in queues.paths[victim.queue][:beneath]:
            minimum = queues.rows[each].minimum_seconds
            if minimum and session.now - victim.row.since < minimum:
                return False
            left = queues.stays[each] - load
            if (load > _SLACK).any() and (left < queues.guaranteed[each] - _SLACK)[
                (load > _SLACK) & self.asks
            ].any():
                return False
        over, straddles = self._over(victim, load, beneath)
        entitled = any(self.flags[:below])
        if not over or ((entitled or (straddles and not surplus)) and not self._cures(victim, load)):
            return False
        if entitled:
            return True
        top = self.path[below - 1]
        if not session.rules.beyond_nominal or not job.row.preemptible:
            return False
        if queues.rows[top].weight <= 0 or theirs > mine:
            return False
        if theirs < mine or self.turns:
            return True
        other = queues.paths[victim.queue][beneath - 1]
        before = queues.share(other, queues.stays[other])
        after = queues.share(other, queues.stays[other] - load)
        least = self.share[below - 1]
        return least < before - _SLACK and (straddles or least <= after + _SLACK)

    def may_displace(self, victim: JobState) -> bool:
        """Whether surplus of the victim may be taken by a claim within nominal if it fits elsewhere: its
        queue loses nothing."""
        session, queues = self.session, self.session.queues
        below, beneath = queues.common(self.job.queue, victim.queue)
        if not below or not beneath or queues.fenced(self.job.queue, victim.queue):
            return False
        minimum = max(queues.rows[each].minimum_seconds for each in queues.paths[victim.queue][:beneath])
        return any(self.flags[:below]) and session.now - victim.row.since >= minimum

    def _cures(self, victim: JobState, load: Floats) -> bool:
        """Whether the shortfalls of nominal that evictions cause stay below the one that they cure. A
        gang larger than its queue's nominal has no claim to that, so its end causes none."""
        queues = self.session.queues
        after = queues.stays.copy()
        after[queues.paths[victim.queue]] -= np.where(
            load > queues.nominal[victim.queue] + _SLACK, 0.0, load
        )
        asks = self.asks.copy()
        asks[-1] = False
        caused = queues.shortfall(after) - queues.shortfall(self.before)
        return not (caused >= self.cured - _SLACK)[asks & (caused > _SLACK)].any()

    def _over(self, victim: JobState, load: Floats, beneath: int) -> tuple[bool, bool]:
        """Whether each queue of the victim's, below the common one, is over its nominal where the unit
        is taken, and whether the unit straddles that: without it the queue is below."""
        session = self.session
        queues = session.queues
        asks = self.asks & (load > _SLACK)
        asks[-1] = False
        if not asks.any():
            return False, False
        for each in queues.paths[victim.queue][:beneath]:
            nominal = queues.nominal[each]
            use = queues.stays[each]
            if not (use > nominal + _SLACK)[asks].any():
                return False, False
            over = (use > nominal + _SLACK) & asks
            lower = self._below(each, victim.row.priority)
            rest = use - lower - load
            if not ((rest >= nominal - _SLACK) | (load > nominal + _SLACK))[over].any():
                return bool(((use - lower) > nominal + _SLACK)[over].any()), True
        return True, False

    # all units at once

    def rights(self, units: Units, among: Bools) -> Bools:
        """`may_take` of each of these units, as usage is now."""
        if not among.any():
            return among
        session, job, queues = self.session, self.job, self.session.queues
        mine, theirs, queue = job.row.priority, units.unit_priority, units.unit_queue
        surplus = np.arange(len(queue)) < units.surplus
        count = len(queues.rows)
        pairs = [queues.common(job.queue, each) for each in range(count)]
        below = np.array([pair[0] for pair in pairs], np.int64)
        beneath = np.array([pair[1] for pair in pairs], np.int64)
        fenced = np.array([queues.fenced(job.queue, each) for each in range(count)], np.bool_)
        entitled = np.array([any(self.flags[:each]) for each in below], np.bool_)
        own = queue == job.queue
        found: Bools = among & own & ((theirs < mine) | ((theirs == mine) & (surplus | self.turns)))
        line: Bools = among & ~own & ~fenced[queue] & ((below == 0) | (beneath == 0))[queue]
        found |= line & (theirs < mine)
        rest: Bools = among & ~own & ~fenced[queue] & ~line
        if session.rules.beyond_nominal and job.row.preemptible:
            weights = [queues.rows[self.path[pair[0] - 1]].weight if pair[0] else 0.0 for pair in pairs]
            rest &= entitled[queue] | ((np.array(weights) > 0)[queue] & (theirs <= mine))
        else:
            rest &= entitled[queue]
        at = np.flatnonzero(rest)
        at = at[self._unprotected(units, at, beneath)]
        over, straddles = self._all_over(units, at, beneath)
        at, straddles = at[over], straddles[over]
        inside = entitled[queue[at]]
        cures = self._all_cure(units, at) | ~(inside | (straddles & ~surplus[at]))
        at, straddles, inside = at[cures], straddles[cures], inside[cures]
        fine = inside.copy()
        beyond = np.flatnonzero(~inside)
        lower = theirs[at[beyond]] < mine
        fine[beyond] = lower | self.turns
        equal = beyond[~lower] if not self.turns else beyond[:0]
        fine[equal] = self._all_behind(units, at[equal], below, beneath, straddles[equal])
        found[at[fine]] = True
        return found

    def _levels(self, units: Units, at: Ints, beneath: Ints) -> list[tuple[Ints, Ints]]:
        """By depth: which of the units have a queue there below the common one, and that queue."""
        paths, queue = self.session.queues.paths, units.unit_queue[at]
        found: list[tuple[Ints, Ints]] = []
        for depth in range(int(beneath[queue].max(initial=0))):
            there = np.flatnonzero(beneath[queue] > depth)
            ancestor = np.array([path[depth] if depth < len(path) else -1 for path in paths])
            found.append((there, ancestor[queue[there]]))
        return found

    def _unprotected(self, units: Units, at: Ints, beneath: Ints) -> Bools:
        """By minimum runtimes and guaranteed capacity."""
        session, queues = self.session, self.session.queues
        fine = np.ones(len(at), np.bool_)
        minimum = np.array([row.minimum_seconds for row in queues.rows])
        for there, each in self._levels(units, at, beneath):
            units_there = at[there]
            if minimum.any():
                held = session.now - units.unit_since[units_there]
                fine[there] &= ~((minimum[each] > 0) & (held < minimum[each]))
            if queues.guaranteed.any():
                load = units.load[units_there]
                left = queues.stays[each] - load
                short = (left < queues.guaranteed[each] - _SLACK) & (load > _SLACK) & self.asks
                fine[there] &= ~short.any(axis=1)
        return fine

    def _all_over(self, units: Units, at: Ints, beneath: Ints) -> tuple[Bools, Bools]:
        queues = self.session.queues
        load = units.load[at]
        asks = self.asks & (load > _SLACK)
        asks[:, -1] = False
        fine = _some(asks)
        decided, straddling = ~fine, np.zeros(len(at), np.bool_)
        classes = sorted({int(each) for each in np.unique(units.unit_priority[at])})
        rank = np.searchsorted(np.array(classes, np.int64), units.unit_priority[at])
        count = len(queues.rows)
        lower = np.array([[self._below(queue, each) for each in classes] for queue in range(count)])
        for there, each in self._levels(units, at, beneath):
            if not len(there):
                continue
            nominal, use = queues.nominal[each], queues.stays[each]
            over: Bools = (use > nominal + _SLACK) & asks[there]
            stands = use - lower[each, rank[there]]
            larger = load[there] > nominal + _SLACK
            good = _some(((stands - load[there] >= nominal - _SLACK) | larger) & over)
            some = _some((stands > nominal + _SLACK) & over)
            any_over = _some(over)
            ends: Bools = ~decided[there] & (~any_over | ~good)
            fine[there] = np.where(ends, any_over & some, fine[there])
            straddling[there] |= ends & any_over & some
            decided[there] |= ends
        return fine, straddling

    def _all_cure(self, units: Units, at: Ints) -> Bools:
        queues = self.session.queues
        queue, load = units.unit_queue[at], units.load[at]
        before = queues.shortfall(queues.stays) - queues.shortfall(self.before)
        nominal, use = queues.nominal[queue], queues.stays[queue]
        load = np.where(load > nominal + _SLACK, 0.0, load)
        more = np.maximum(0.0, nominal - use + load) - np.maximum(0.0, nominal - use)
        caused = before + np.where(queues.leaves[queue][:, None], more, 0.0)
        asks = self.asks.copy()
        asks[-1] = False
        return ~_some((caused >= self.cured - _SLACK) & asks & (caused > _SLACK))

    def _all_behind(self, units: Units, at: Ints, below: Ints, beneath: Ints, straddles: Bools) -> Bools:
        """Kueue's two inequalities of shares; of units that straddle nominal the second alone."""
        queues = self.session.queues
        paths = queues.paths
        mine = np.array([self.share[each - 1] if each else math.inf for each in below])
        top = np.array(
            [path[least - 1] if least else 0 for path, least in zip(paths, beneath, strict=True)]
        )
        queue = units.unit_queue[at]
        other = top[queue]
        weight = np.array([row.weight for row in queues.rows])
        capacity = queues.capacity[:-1]

        def shares(use: Floats) -> Floats:
            beyond = np.maximum(0.0, use - queues.nominal[other])[:, :-1]
            parts = np.divide(beyond, capacity, out=np.zeros_like(beyond), where=capacity > 0)
            most = parts.max(axis=1, initial=0.0)
            divided = np.divide(
                most, weight[other], out=np.full(len(most), np.inf), where=weight[other] > 0
            )
            return np.where(most > 0, divided, 0.0)

        before, after = shares(queues.stays[other]), shares(queues.stays[other] - units.load[at])
        return (straddles | (mine[queue] <= after + _SLACK)) & (mine[queue] < before - _SLACK)


def _surplus(session: Session, job: JobState) -> Floats:
    """Load of elastic surplus in the job's queue, of other jobs of its class."""
    units = session.units()
    mine = (units.queue == job.queue) & (units.priority == job.row.priority)
    if job.name in units.number:
        mine[units.number[job.name]] = False
    found: Floats = np.zeros(len(session.queues.resources))
    for name in session.present:
        at = units.number.get(name, -1)
        if at >= 0 and mine[at]:
            mine[at] = False
            other = session.jobs[name]
            counts = [0] * len(other.requests)
            for task in session.tasks(other):
                counts[other.role(task.role)] += 1
            extra = [max(0, there - least) for there, least in zip(counts, other.gang(), strict=True)]
            found = found + np.asarray(extra, np.float64) @ other.loads
    return found + units.extra[mine].sum(axis=0) if mine.any() else found


def make_room(
    session: Session,
    job: JobState,
    counts: Sequence[int],
    *,
    moves: bool = False,
    turns: bool = False,
) -> list[Slot] | None:
    """Evict and move so that the tasks fit, with rights; None, and nothing done, where that cannot be.

    The slots are taken in `session.later`. `moves`: jobs may be moved that the claim has no right to.
    `turns`: jobs of unknown length whose turn is over may be taken by equal ones.
    """
    if not job.row.preemptible and not Claim(session, job, counts, turns=False).within_nominal:
        return None
    attempt = _Attempt(session, job, counts, moves=moves, turns=turns)
    mark = session.mark()
    found = attempt.run()
    if found is None:
        session.rollback(mark)
    return found


class _Attempt:
    def __init__(
        self, session: Session, job: JobState, counts: Sequence[int], *, moves: bool, turns: bool
    ) -> None:
        self.session, self.job, self.counts = session, job, list(counts)
        self.claim = Claim(session, job, counts, turns=turns)
        self.first = len(session.evictions)
        self.moves = moves
        self.moving: set[str] = set()
        self.displaced: list[tuple[JobState, Task]] = []
        """Surplus of queues that are within nominal, which has to fit elsewhere."""
        self.columns = session.units()
        self._objects: dict[int, Unit] = {}
        self.fresh = session.fresh_units()
        """Of jobs that changed in this decision."""
        stable = np.ones(len(self.columns.jobs), np.bool_)
        for name in session.present:
            if name in self.columns.number:
                stable[self.columns.number[name]] = False
        self.mask, self.movable = self._permitted(self.columns, stable, turns)
        """Units that it has a right to, and those that may be moved for it."""
        every = np.ones(len(self.fresh.jobs), np.bool_)
        self.fresh_mask, self.fresh_movable = self._permitted(self.fresh, every, turns)
        self._orders: dict[int, tuple[Any, ...]] = {}
        self._taken: set[int] = set()
        self._potential: tuple[Ints, Ints] | None = None
        self._estimates: dict[tuple[int, int], tuple[bytes, tuple[Any, ...] | None]] = {}
        self._judged = session.queues.changes

    @property
    def empty(self) -> bool:
        """It has no right to anything."""
        masks = (self.mask, self.movable, self.fresh_mask, self.fresh_movable)
        return not any(mask.any() for mask in masks)

    def run(self) -> list[Slot] | None:
        session, job = self.session, self.job
        load = self.claim.load
        slots = None if self.empty else self._slots()
        if slots is None:
            return None
        while (refusal := session.refused(job, load, now=False)) is not None:
            if not self._relieve(refusal):
                return None
        self._spare(slots, load)
        if not self._moved():
            return None
        if session.refused(job, load, now=False) is not None:
            return None
        if len(session.evictions) == self.first:
            return None
        return slots

    # units

    def _permitted(self, units: Units, fine: Bools, turns: bool) -> tuple[Bools, Bools]:
        session, claim = self.session, self.claim
        mine = self.job.row.priority
        for name in (self.job.name, *session.started, *session.grown):
            if name in units.number:
                fine[units.number[name]] = False
        if not claim.within_nominal:
            fine &= units.priority <= mine
        whole = fine.copy()
        if turns:
            over = np.array([_turn_over(session, job) for job in units.jobs], np.bool_)
            whole &= (units.priority != mine) | over
        alive = np.concatenate([fine[units.job[: units.surplus]], whole[units.job[units.surplus :]]])
        found = claim.rights(units, alive)
        moves = np.zeros(len(found), np.bool_)
        if self.moves:
            movable = np.array([self._movable(job) for job in units.jobs], np.bool_)
            moves[units.surplus :] = (alive & movable[units.job])[units.surplus :]
        if claim.within_nominal:
            fits = np.array([claim.may_displace(job) for job in units.jobs], np.bool_)
            moves[: units.surplus] = (alive & ~found & fits[units.job])[: units.surplus]
        return found, moves

    def _order_of(self, unit: Unit) -> tuple[Any, ...]:
        session, row = self.session, unit.job.row
        share = session.queues.share(unit.job.queue, session.queues.stays[unit.job.queue])
        if unit.surplus:
            return (0, row.priority, -share, 0.0, unit.position, -row.since, row.name)
        return (1, row.priority, -share, 0, -row.since, held_seconds(row, session.now), row.name)

    def _unit(self, at: int) -> Unit:
        """By its column; negative: of a job that changed in this decision."""
        found = self._objects.get(at)
        if found is None:
            found = self.columns.unit(at) if at >= 0 else self.fresh.unit(-1 - at)
            if at < 0:
                found = replace(found, job=self.session.jobs[found.job.name])
            self._objects[at] = found
        return found

    def _order(self, at: int) -> tuple[Any, ...]:
        found = self._orders.get(at)
        if found is None:
            found = self._orders[at] = self._order_of(self._unit(at))
        return found

    def _on(self, node: int) -> list[int]:
        """Units with a task on the node, the first to go first."""
        units = _on_node(self.columns, node, self.mask | self.movable)
        if len(self.fresh.jobs):
            units += [-1 - at for at in _on_node(self.fresh, node, self.fresh_mask | self.fresh_movable)]
        return sorted(units, key=self._order)

    def _load(self, unit: Unit) -> Floats:
        counts = [0] * len(unit.job.requests)
        present = {(task.role, task.index) for task in self.session.tasks(unit.job)}
        for task in unit.tasks:
            if (task.role, task.index) in present:
                counts[unit.job.role(task.role)] += 1
        return unit.job.load(counts, new=not unit.surplus)

    def _right(self, unit: Unit) -> bool:
        if not self.session.tasks(unit.job):
            return False
        if not self.claim.may_take(unit.job, self._load(unit), surplus=unit.surplus):
            return False
        return not unit.surplus or self._loose(unit)

    def _loose(self, unit: Unit) -> bool:
        loose = {(task.role, task.index) for task in unit.job.loose(self.session.tasks(unit.job))}
        return any((task.role, task.index) in loose for task in unit.tasks)

    def _may_move(self, unit: Unit) -> bool:
        if not self.session.tasks(unit.job):
            return False
        if unit.surplus:
            return self.claim.may_displace(unit.job) and self._loose(unit)
        return self.moves and self._movable(unit.job)

    def _movable(self, job: JobState) -> bool:
        session, row = self.session, job.row
        if not row.movable:
            return False
        if row.priority > self.job.row.priority and not self.claim.within_nominal:
            return False
        return session.now - row.since >= session.rules.settling_seconds or row.since == 0.0

    def _take(self, unit: Unit, *, move: bool) -> None:
        session = self.session
        present = {(task.role, task.index) for task in session.tasks(unit.job)}
        tasks = [task for task in unit.tasks if (task.role, task.index) in present]
        before = next((e for e in session.evictions[self.first :] if e.job == unit.job.name), None)
        found = session.evict(unit.job, tasks, "Preempted", self.job.name)
        if before is not None:
            session.evictions.remove(before)
            found.tasks = [*before.tasks, *tasks]
        if move and unit.surplus:
            self.displaced += [(unit.job, task) for task in tasks]
        elif move:
            self.moving.add(unit.job.name)

    # node sets

    def _slots(self) -> list[Slot] | None:
        """The cheapest evictions, task by task, over the domains that the gang may be in."""
        session, job = self.session, self.job
        domains: list[Bools | None] = [None]
        asked = [role for role, count in zip(job.row.roles, self.counts, strict=True) if count]
        required = job.row.required or (asked[0].required if len(asked) == 1 else "")
        if required:
            level = session.nodes.domains(required)
            domains = [level == each for each in range(int(level.max(initial=-1)) + 1)]
        if len(domains) == 1:
            return self._slots_in(domains[0])
        masks = self.mask.copy(), self.fresh_mask.copy()
        found: list[tuple[tuple[int, int, int], Bools | None]] = []
        for at, domain in enumerate(domains):
            mark = session.mark()
            if self._slots_in(domain) is not None:
                taken = session.evictions[self.first :]
                whole = sum(each.whole for each in taken)
                found.append(((whole, sum(len(each.tasks) for each in taken), at), domain))
            session.rollback(mark)
            self.mask, self.fresh_mask = masks[0].copy(), masks[1].copy()
            self._potential = None
            self._estimates.clear()
            if len(found) == _MOST_DOMAINS:
                break
        return self._slots_in(min(found, key=lambda each: each[0])[1]) if found else None

    def _slots_in(self, domain: Bools | None) -> list[Slot] | None:
        self.moving.clear()
        self.displaced.clear()
        if not self._clear(domain):
            return None
        session = self.session
        return place(session.nodes, session.later, self.job, self.counts, within=domain)

    def _clear(self, domain: Bools | None) -> bool:
        """Evict until the gang fits on what is later free."""
        session, job = self.session, self.job
        mark = session.later.mark()
        sizes = [(req.gpus * 1000 + req.share, sum(req.amounts)) for req in job.requests]
        for role in sorted(range(len(self.counts)), key=lambda at: (*(-each for each in sizes[at]), at)):
            request = job.requests[role]
            mask = session.nodes.open & session.nodes.suits(job.row.roles[role])
            if domain is not None:
                mask = mask & domain
            for _ in range(self.counts[role]):
                fits = np.where(mask, session.later.counts(request), 0)
                there = np.flatnonzero(fits > 0)
                if len(there):
                    node = int(there[np.argmin(fits[there])])
                else:
                    found = self._cheapest(role, mask)
                    if found is None:
                        return False
                    node, units = found
                    for unit, move in units:
                        self._take(unit, move=move)
                gpus = session.later.choose_gpus(node, request)
                session.later.change(node, request, gpus, -1)
        self._forget_own(mark)
        return True

    def _forget_own(self, mark: int) -> None:
        """The claim's own tasks are placed together in the end: count only evictions."""
        session = self.session
        evictions = session.evictions[self.first :]
        session.later.rollback(mark)
        index = session.nodes.index
        for eviction in evictions:
            job = session.jobs[eviction.job]
            for task in eviction.tasks:
                if task.node in index:
                    request = job.requests[job.role(task.role)]
                    session.later.change(index[task.node], request, task.gpus, +1)

    def _cheapest(self, role: int, mask: Bools) -> tuple[int, list[tuple[Unit, bool]]] | None:
        """The node whose units cost least. Costs are estimated without the effect of one eviction on
        the right to the next, and the first by the estimate are tried."""
        session = self.session
        request = self.job.requests[role]
        self._judge()
        later = session.later
        queue: list[tuple[tuple[Any, ...], int]] = []
        for node in self._candidates(request, mask):
            # rights only shrink: an estimate stays a lower bound while nothing is freed on the node
            mark = later.amounts[node].tobytes() + later.slots[node].tobytes()
            known = self._estimates.get((node, role))
            if known is None or known[0] != mark:
                known = self._estimates[node, role] = (mark, self._estimate(node, request))
            if known[1] is not None:
                queue.append((known[1], node))
        heapq.heapify(queue)
        best: tuple[tuple[Any, ...], int, list[tuple[Unit, bool]]] | None = None
        while queue:
            estimate, node = heapq.heappop(queue)
            if best is not None and best[:2] <= (estimate, node):
                break
            mark = session.mark()
            moving, displaced = set(self.moving), len(self.displaced)
            found = self._on_node(node, request)
            session.rollback(mark)
            self.moving = moving
            del self.displaced[displaced:]
            if found is not None and (best is None or (_cost(found, session), node) < best[:2]):
                best = (_cost(found, session), node, found)
        return None if best is None else best[1:]

    def _judge(self) -> None:
        """Rights as evictions leave them: units that lost theirs are not looked at again."""
        if self.session.queues.changes != self._judged:
            self._judged = self.session.queues.changes
            self.mask = self.claim.rights(self.columns, self.mask)
            self.fresh_mask = self.claim.rights(self.fresh, self.fresh_mask)

    def _candidates(self, request: Request, mask: Bools) -> list[int]:
        """Nodes on which one task fits if all units that may be taken are, most idle first."""
        session = self.session
        if self._potential is None:
            self._potential = self._summed()
        amounts, slots = self._potential
        fits = fitting(request, amounts, slots) > 0
        found = np.flatnonzero(fits & mask & self._touched)
        idle = session.later.slots[found].sum(axis=1) + session.later.amounts[found].sum(axis=1)
        order = np.lexsort((found, -idle))
        return [int(each) for each in found[order][:_MOST_NODES]]

    def _summed(self) -> tuple[Ints, Ints]:
        """By node: what is later free, and what units that may be taken hold."""
        later = self.session.later
        amounts, slots = later.amounts.copy(), later.slots.copy()
        self._touched: Bools = np.zeros(len(amounts), np.bool_)
        pairs = (
            (self.columns, self.mask | self.movable),
            (self.fresh, self.fresh_mask | self.fresh_movable),
        )
        for columns, mask in pairs:
            tasks = columns.tasks(mask) & (columns.task_node >= 0)
            np.add.at(amounts, columns.task_node[tasks], columns.task_amounts[tasks])
            parts = tasks[columns.gpu_task]
            where = (columns.task_node[columns.gpu_task[parts]], columns.gpu[parts])
            np.add.at(slots, where, columns.gpu_part[parts])
            self._touched[columns.task_node[tasks]] = True
        return amounts, slots

    def _estimate(self, node: int, request: Request) -> tuple[Any, ...] | None:
        """The cost of the first units of the node that let one task fit."""
        session = self.session
        later = session.later
        amounts, slots = later.amounts[node].tolist(), later.slots[node].tolist()
        name = session.nodes.rows[node].name
        taken: list[tuple[Unit, bool]] = []
        seen: set[tuple[str, str, int]] = set()
        if _one_fits(request, amounts, slots):
            return _cost(taken, session)
        units = self._on(node)
        moving = [at for at in units if not self._has_right(at)]
        for at in [*(at for at in units if self._has_right(at)), *moving]:
            unit = self._unit(at)
            job = unit.job
            current = session.present.get(job.name)
            if current is not None and not any(task in current for task in unit.tasks):
                continue
            for task in unit.tasks:
                key = (job.name, task.role, task.index)
                if task.node != name or key in seen or (current is not None and task not in current):
                    continue
                seen.add(key)
                given = job.requests[job.role(task.role)]
                for column, amount in enumerate(given.amounts):
                    amounts[column] += amount
                for gpu in task.gpus:
                    slots[gpu] += given.share or WHOLE
            taken.append((unit, not self._has_right(at)))
            if _one_fits(request, amounts, slots):
                return _cost(taken, session)
        return None

    def _has_right(self, at: int) -> bool:
        return bool(self.mask[at] if at >= 0 else self.fresh_mask[-1 - at])

    def _on_node(self, node: int, request: Any) -> list[tuple[Unit, bool]] | None:
        """Units of the node that let one task fit, in order of cost; what turns out unneeded is left."""
        session = self.session
        taken: list[tuple[Unit, bool]] = []

        def fits() -> bool:
            later = session.later
            return _one_fits(request, later.amounts[node].tolist(), later.slots[node].tolist())

        units = [self._unit(at) for at in self._on(node)]
        for move in (False, True):
            for unit in units:
                if fits():
                    break
                if any(unit is each for each, _ in taken):
                    continue
                if self._may_move(unit) if move else self._right(unit):
                    self._take(unit, move=move)
                    taken.append((unit, move))
            if fits():
                break
        if not fits():
            return None
        return taken

    def _relieve(self, refusal: Refusal) -> bool:
        """One more unit inside the queue whose limit refuses."""
        session = self.session
        self._judge()
        inside = np.array(
            [refusal.queue < 0 or refusal.queue in path for path in session.queues.paths], np.bool_
        )
        units: list[int] = []
        for columns, mask, sign in ((self.columns, self.mask, 1), (self.fresh, self.fresh_mask, -1)):
            fine = mask & (columns.load[:, refusal.resource] > _SLACK) & inside[columns.unit_queue]
            units += [int(at) if sign > 0 else -1 - int(at) for at in np.flatnonzero(fine)]
        for at in sorted(units, key=self._order):
            unit = self._unit(at)
            if refusal.code == "UserCap" and unit.job.row.user != self.job.row.user:
                continue
            if self._load(unit)[refusal.resource] > _SLACK and self._right(unit):
                self._take(unit, move=False)
                return True
            if at >= 0:  # rights only shrink
                self.mask[at] = False
            else:
                self.fresh_mask[-1 - at] = False
        return False

    def _spare(self, slots: Sequence[Slot], load: Floats) -> None:
        """Give back evictions that are not needed any more, the dearest first."""
        session = self.session
        for eviction in sorted(session.evictions[self.first :], key=lambda each: (not each.whole,)):
            job = session.jobs[eviction.job]
            if eviction.job in self.moving:
                continue
            mark = session.mark()
            if not _restore(session, job, eviction) or session.refused(self.job, load, now=False):
                session.rollback(mark)

    def _moved(self) -> bool:
        """Whole jobs that find another place move; those that must and cannot fail the attempt."""
        session = self.session
        own = self.claim.load
        session.base.count_stays(self.job, own)
        evictions = [each for each in session.evictions[self.first :] if each.whole]
        ranked = sorted(
            evictions,
            key=lambda each: (
                each.job not in self.moving,
                -session.jobs[each.job].row.priority,
                session.jobs[each.job].row.since,
                each.job,
            ),
        )
        fine = True
        for eviction in ranked:
            job = session.jobs[eviction.job]
            if not job.row.movable and eviction.job not in self.moving:
                continue
            counts = [0] * len(job.requests)
            for task in eviction.tasks:
                counts[job.role(task.role)] += 1
            load = job.load(counts, new=True)
            kept = job.present
            job.present = []
            found = None
            if session.refused(job, load, now=False) is None:
                found = place(session.nodes, session.later, job, counts)
            job.present = kept
            if found is not None:
                session.base.count_stays(job, load)
                eviction.to, eviction.code = found, "Consolidated"
            elif eviction.job in self.moving:
                fine = False
                break
        session.base.count_stays(self.job, -own)
        return fine and self._fits_elsewhere()

    def _fits_elsewhere(self) -> bool:
        """Whether displaced surplus finds capacity that is idle once the claim has its slots. What is
        served there next is decided as ever: by the order of pending jobs, then by growth."""
        later = self.session.later
        gone = {
            (each.job, task.role, task.index)
            for each in self.session.evictions[self.first :]
            for task in each.tasks
        }
        mark, fine = later.mark(), True
        for job, task in self.displaced:
            if (job.name, task.role, task.index) not in gone:
                continue
            counts = [0] * len(job.requests)
            counts[job.role(task.role)] = 1
            fine = fine and place(self.session.nodes, later, job, counts) is not None
        later.rollback(mark)
        return fine


def _on_node(columns: Units, node: int, mask: Bools) -> list[int]:
    tasks = columns.on_node(node)
    found = {int(each) for each in columns.unit_of_task[tasks] if each >= 0}
    found |= {int(each) for each in columns.unit_of_job[columns.task_job[tasks]] if each >= 0}
    return [each for each in found if mask[each]]


def _some(rows: Bools) -> Bools:
    """Of each row, whether any column is true."""
    found: Bools = np.logical_or.reduce(rows, axis=1)
    return found


def _one_fits(request: Request, amounts: list[int], slots: list[int]) -> bool:
    if any(there < ask for there, ask in zip(amounts, request.amounts, strict=True)):
        return False
    if request.gpus:
        return sum(each >= WHOLE for each in slots) >= request.gpus
    return not request.share or any(each >= request.share for each in slots)


def _turn_over(session: Session, victim: JobState) -> bool:
    turn = session.rules.minimum_run_seconds
    return bool(turn) and victim.row.wall_seconds is None and session.now - victim.row.since >= turn


def _cost(units: Sequence[tuple[Unit, bool]], session: Session) -> tuple[Any, ...]:
    """Restarts, class, lost work, newest first, name."""
    whole = [(unit, move) for unit, move in units if not unit.surplus]
    lost = sum(held_seconds(unit.job.row, session.now) for unit, _ in whole)
    newest = min((-unit.job.row.since for unit, _ in units), default=0.0)
    return (
        len(whole),
        sum(not move for _, move in whole),
        max((unit.job.row.priority for unit, _ in units), default=0),
        len(units),
        lost,
        sum(unit.position for unit, _ in units if unit.surplus),
        newest,
        min((unit.job.name for unit, _ in units), default=""),
    )


def _restore(session: Session, job: JobState, eviction: Eviction) -> bool:
    """Whether the evicted tasks fit again where they were."""
    index = session.nodes.index
    counts = [0] * len(job.requests)
    for task in eviction.tasks:
        role = job.role(task.role)
        at = index.get(task.node)
        if at is None or not session.later.fits(at, job.requests[role], task.gpus):
            return False
        session.later.change(at, job.requests[role], task.gpus, -1)
        counts[role] += 1
    session.base.count_stays(job, job.load(counts, new=eviction.whole))
    session.present[job.name] = [*session.tasks(job), *eviction.tasks]
    session.evictions.remove(eviction)
    return True
