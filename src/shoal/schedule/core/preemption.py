"""Evictions and moves that complete a gang: candidates by node, within the rights of the claim.

The claim is within nominal or beyond it (`Claim`). Candidates are units: single tasks of elastic
surplus, then whole jobs. For each node the cheapest units that let a task fit are taken in a dry run;
jobs that find another place in the same dry run move, the others are lost. Nothing is evicted for a gang
that stays incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.schedule.core.placement import place
from shoal.schedule.core.queues import Refusal
from shoal.schedule.core.session import Eviction, Session, held_seconds
from shoal.schedule.core.state import JobState, Slot, fitting
from shoal.schedule.cycle.rows import Task

__all__ = ["Claim", "make_room"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_SLACK = 1e-9
_MOST_NODES = 48
"""Candidate nodes that one task of a claim looks at."""


@dataclass(frozen=True)
class Unit:
    """What is taken at once."""

    job: JobState
    tasks: tuple[Task, ...]
    surplus: bool
    nodes: tuple[int, ...]
    order: tuple[Any, ...]
    moves: bool
    """It may only be taken where it starts again elsewhere."""


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
        use = self._equal_or_higher()
        self.flags = [queues.within(each, use[each] + self.load, self.asks) for each in path]
        self.share = [queues.share(each, queues.stays[each] + self.load) for each in path]

    def _equal_or_higher(self) -> dict[int, Floats]:
        """Usage of each queue of the path without lower classes, and without the surplus of equal
        ones, which nominal covers after minimums."""
        session, job = self.session, self.job
        found: dict[int, Floats] = {}
        lower: dict[int, Floats] = {}
        for (queue, priority), load in session.base.classes.items():
            if priority < job.row.priority and queue in self.path:
                lower[queue] = lower[queue] + load if queue in lower else load
        for queue in self.path:
            found[queue] = session.queues.stays[queue] - lower.get(queue, 0.0)
        for other in session.jobs.values():
            if other.queue == job.queue and other.row.priority == job.row.priority and other is not job:
                extra = [
                    there - least
                    for there, least in zip(_counts(session, other), other.gang(), strict=True)
                ]
                if any(each > 0 for each in extra):
                    load = np.maximum(extra, 0) @ other.loads
                    for queue in self.path:
                        found[queue] = found[queue] - load
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
        if not self._over(victim, load, beneath, surplus=surplus):
            return False
        if any(self.flags[:below]):
            return self._cures(victim, load)
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
        return self.share[below - 1] <= after + _SLACK and self.share[below - 1] < before - _SLACK

    def _cures(self, victim: JobState, load: Floats) -> bool:
        """Whether the shortfalls of nominal that evictions cause stay below the one that they cure."""
        queues = self.session.queues
        after = queues.stays.copy()
        after[queues.paths[victim.queue]] -= load
        asks = self.asks.copy()
        asks[-1] = False
        caused = queues.shortfall(after) - queues.shortfall(self.before)
        return not (caused >= self.load - _SLACK)[asks & (caused > _SLACK)].any()

    def _over(self, victim: JobState, load: Floats, beneath: int, *, surplus: bool) -> bool:
        """Whether each queue of the victim's, below the common one, is over its nominal where the unit
        is taken; a unit may straddle it, but a gang whose minimum is inside nominal is not taken."""
        session = self.session
        queues = session.queues
        asks = self.asks & (load > _SLACK)
        asks[-1] = False
        if not asks.any():
            return False
        for each in queues.paths[victim.queue][:beneath]:
            nominal = queues.nominal[each]
            use = queues.stays[each]
            if not (use > nominal + _SLACK)[asks].any():
                return False
            over = (use > nominal + _SLACK) & asks
            lower: Floats = np.zeros(len(load))
            for (queue, priority), held in session.base.classes.items():
                if queue == each and priority < victim.row.priority:
                    lower = lower + held
            rest = use - lower - load
            if not ((rest >= nominal - _SLACK) | (load > nominal + _SLACK))[over].any():
                return surplus and bool(((use - lower) > nominal + _SLACK)[over].any())
        return True


def _counts(session: Session, job: JobState) -> list[int]:
    found = [0] * len(job.requests)
    for task in session.tasks(job):
        found[job.role(task.role)] += 1
    return found


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
        self.units = sorted(self._units(turns), key=lambda unit: unit.order)
        self.by_node: dict[int, list[Unit]] = {}
        for unit in self.units:
            for node in unit.nodes:
                self.by_node.setdefault(node, []).append(unit)

    def run(self) -> list[Slot] | None:
        session, job = self.session, self.job
        load = self.claim.load
        slots = self._slots() if self.units else None
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

    def _units(self, turns: bool) -> Iterator[Unit]:
        session, claim = self.session, self.claim
        index = session.nodes.index
        for victim in session.jobs.values():
            row = victim.row
            if victim is self.job or not row.tasks or not row.preemptible:
                continue
            tasks = session.tasks(victim)
            if not tasks or (any(not task.preemptible for task in tasks) and len(tasks) == 1):
                continue
            if row.priority > self.job.row.priority and not claim.within_nominal:
                continue
            if victim.name in session.started or victim.name in session.grown:
                continue
            share = session.queues.share(victim.queue, session.queues.stays[victim.queue])
            fixed = [task for task in tasks if not task.preemptible]
            for place_, task in enumerate(victim.loose(tasks)):
                at = index.get(task.node, -1)
                order = (0, row.priority, -share, 0.0, place_, -row.since, row.name)
                yield Unit(victim, (task,), True, (at,), order, False)
            if fixed:
                continue
            over = turns and row.priority == self.job.row.priority
            if over and not _turn_over(session, victim):
                continue
            nodes = tuple(sorted({index.get(task.node, -1) for task in tasks}))
            lost = held_seconds(row, session.now)
            order = (1, row.priority, -share, 0, -row.since, lost, row.name)
            yield Unit(victim, tuple(tasks), False, nodes, order, False)

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
        if not unit.surplus:
            return True
        loose = {(task.role, task.index) for task in unit.job.loose(self.session.tasks(unit.job))}
        return any((task.role, task.index) in loose for task in unit.tasks)

    def _may_move(self, unit: Unit) -> bool:
        session, row = self.session, unit.job.row
        if not self.moves or unit.surplus or not row.movable or not session.tasks(unit.job):
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
        if move:
            self.moving.add(unit.job.name)

    # node sets

    def _slots(self) -> list[Slot] | None:
        """The cheapest evictions, task by task, over the domains that the gang may be in."""
        session, job = self.session, self.job
        domains: list[Bools | None] = [None]
        if job.row.required:
            level = session.nodes.domains(job.row.required)
            domains = [level == each for each in range(int(level.max(initial=-1)) + 1)]
        for domain in domains:
            mark = session.mark()
            self.moving.clear()
            if self._clear(domain):
                found = place(session.nodes, session.later, job, self.counts, within=domain)
                if found is not None:
                    return found
            session.rollback(mark)
        return None

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
        session = self.session
        request = self.job.requests[role]
        candidates = self._candidates(request, mask)
        best: tuple[tuple[Any, ...], int, list[tuple[Unit, bool]]] | None = None
        for node in candidates:
            mark = session.mark()
            moving = set(self.moving)
            found = self._on_node(node, request)
            session.rollback(mark)
            self.moving = moving
            if found is None:
                continue
            cost = (*_cost(found, session), node)
            if best is None or cost < best[0]:
                best = (cost, node, found)
        return None if best is None else (best[1], best[2])

    def _candidates(self, request: Any, mask: Bools) -> list[int]:
        session = self.session
        nodes = np.array(sorted(node for node in self.by_node if node >= 0 and mask[node]), np.int64)
        if not len(nodes):
            return []
        amounts, slots = session.later.amounts[nodes].copy(), session.later.slots[nodes].copy()
        place_of = {int(node): at for at, node in enumerate(nodes)}
        seen: set[tuple[str, str, int]] = set()
        for node, at in place_of.items():
            for unit in self.by_node[node]:
                for task in unit.tasks:
                    key = (unit.job.name, task.role, task.index)
                    if key in seen or session.nodes.index.get(task.node) != node:
                        continue
                    seen.add(key)
                    if all(task is not each for each in session.tasks(unit.job)):
                        continue
                    request_ = unit.job.requests[unit.job.role(task.role)]
                    amounts[at] += np.asarray(request_.amounts, np.int64)
                    for gpu in task.gpus:
                        slots[at, gpu] += request_.share or 1000
        enough = fitting(request, amounts, slots) > 0
        found = nodes[enough]
        idle = session.later.slots[found].sum(axis=1) + session.later.amounts[found].sum(axis=1)
        order = np.lexsort((found, -idle))
        return [int(each) for each in found[order][:_MOST_NODES]]

    def _on_node(self, node: int, request: Any) -> list[tuple[Unit, bool]] | None:
        """Units of the node that let one task fit, in order of cost; what turns out unneeded is left."""
        session = self.session
        taken: list[tuple[Unit, bool]] = []

        def fits() -> bool:
            rows = slice(node, node + 1)
            return bool(fitting(request, session.later.amounts[rows], session.later.slots[rows])[0])

        units = sorted(self.by_node[node], key=lambda unit: unit.order)
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
        for unit in self.units:
            if refusal.queue >= 0 and refusal.queue not in session.queues.paths[unit.job.queue]:
                continue
            if refusal.code == "UserCap" and unit.job.row.user != self.job.row.user:
                continue
            if self._load(unit)[refusal.resource] > _SLACK and self._right(unit):
                self._take(unit, move=False)
                return True
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
        return fine


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
        sum(unit.order[4] for unit, _ in units if unit.surplus),
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
