"""One decision in progress: capacity and usage with tentative actions applied."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.objects.meta import Stamp
from shoal.schedule.core.queues import Queues, Refusal
from shoal.schedule.core.state import Capacity, JobState, Nodes, Shapes, Slot, job_state
from shoal.schedule.core.units import Units
from shoal.schedule.cycle.rows import Cluster, Job, Rules, Task
from shoal.schedule.cycle.steps import Grow, Move, Preempt, Shrink, Start

__all__ = ["Base", "Session"]

Floats = npt.NDArray[np.float64]
_MOST_SHAPES = 100_000
"""Shapes and kinds beyond those of the jobs that are there, before the columns are made again."""


class Base:
    """What rows come to, kept between decisions: a changed row costs what it changes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = Nodes(cluster)
        self.queues = Queues(cluster.queues, self.nodes)
        self.jobs: dict[str, JobState] = {}
        self.shapes = Shapes(self.nodes, self.queues.resources)
        self.idle = Capacity(self.nodes.amounts.copy(), self.nodes.slots.copy())
        self.later = self.idle.copy()
        self.licences: dict[str, int] = dict(cluster.shared)
        self.classes: dict[tuple[int, int], Floats] = {}
        """Usage that stays, by queue of a path and priority."""
        self.never: dict[int, tuple[str, dict[str, Any]] | None] = {}
        """By kind: why a job of it will never start here."""
        self.too_large: dict[tuple[Any, ...], list[tuple[str, dict[str, Any]]]] = {}
        """By shape and topology."""
        self.empty = Capacity(self.nodes.amounts.copy(), self.nodes.slots.copy())
        """The nodes without any task."""
        self.chosen: dict[tuple[Any, ...], tuple[Any, list[int]]] = {}
        """Sizes of jobs with curves, by queue and class, with what they follow from."""
        self._units: Units | None = None
        self.update(cluster)

    def carries(self, cluster: Cluster) -> bool:
        """Whether nodes, queues and resources are those that it was made for."""
        before = self.cluster
        known = set(self.nodes.resources)
        return (
            len(self.shapes) < 4 * len(cluster.jobs) + _MOST_SHAPES
            and before.nodes == cluster.nodes
            and before.queues == cluster.queues
            and before.levels == cluster.levels
            and before.shared == cluster.shared
            and all(
                known.issuperset(role.amounts)
                for job in cluster.jobs
                if (state := self.jobs.get(job.name)) is None or state.row is not job
                for role in job.roles
            )
        )

    def update(self, cluster: Cluster) -> None:
        """Rows that differ are counted again."""
        self.cluster = cluster
        seen: set[str] = set()
        count = len(self.jobs)
        for row in cluster.jobs:
            name = row.name
            seen.add(name)
            known = self.jobs.get(name)
            if known is not None and known.row is row:
                continue
            if known is not None:
                self._count(known, -1)
            if row.queue not in self.queues.index:
                raise ValueError(f"job {name} is in queue {row.queue}, which does not exist")
            state = job_state(row, self.queues.index[row.queue], self.shapes)
            self.jobs[name] = state
            self._count(state, +1)
        if len(self.jobs) > count:  # by name: plans do not depend on the order of rows
            self.jobs = dict(sorted(self.jobs.items()))
        if len(self.jobs) > len(seen):
            for name in self.jobs.keys() - seen:
                self._count(self.jobs.pop(name), -1)

    def units(self) -> Units:
        """Made when they are first needed after rows have changed."""
        if self._units is None:
            self._units = Units(
                self.jobs, self.nodes.index, len(self.nodes.rows), len(self.queues.resources)
            )
        return self._units

    def _count(self, job: JobState, sign: int) -> None:
        row = job.row
        if not row.tasks and not row.reserved:
            return
        self._units = None
        index = self.nodes.index
        held, stays = [0] * len(row.roles), [0] * len(row.roles)
        for task in row.tasks:
            role = job.role(task.role)
            held[role] += 1
            if not task.stopping:
                stays[role] += 1
            at = index.get(task.node)
            if at is not None:
                self.idle.change(at, job.requests[role], task.gpus, -sign)
                if not task.stopping:
                    self.later.change(at, job.requests[role], task.gpus, -sign)
        for task in row.reserved:
            role = job.role(task.role)
            stays[role] += 1
            at = index.get(task.node)
            if at is not None:
                self.later.change(at, job.requests[role], task.gpus, -sign)
        if row.tasks:
            self.queues.add(job.queue, row.user, sign * job.load(held, new=True), held=True)
            for name, amount in row.shared.items():
                self.licences[name] = self.licences.get(name, 0) - sign * amount
        if any(stays):
            self.count_stays(job, sign * job.load(stays, new=True))

    def count_stays(self, job: JobState, load: Floats) -> None:
        """Usage that stays, by queue and class."""
        self.queues.add(job.queue, job.row.user, load, stays=True)
        for queue in self.queues.paths[job.queue]:
            key = (queue, job.row.priority)
            self.classes[key] = self.classes[key] + load if key in self.classes else load.copy()


@dataclass
class Eviction:
    """Tasks that stop; `to`: where they start again."""

    job: str
    tasks: list[Task]
    code: str
    beneficiary: str = ""
    to: list[Slot] | None = None
    whole: bool = False
    evidence: dict[str, Any] = field(default_factory=dict[str, Any])


class Session:
    """Applies tentative actions. Everything can be rolled back to a mark."""

    def __init__(self, base: Base, rules: Rules, now: Stamp) -> None:
        self.base, self.rules, self.now = base, rules, now
        self.nodes, self.queues, self.jobs = base.nodes, base.queues, base.jobs
        self.idle, self.later = base.idle, base.later
        self.idle.settle()
        self.later.settle()
        self._begun = (self.idle.mark(), self.later.mark())
        self.free = Capacity(
            np.minimum(self.idle.amounts, self.later.amounts),
            np.minimum(self.idle.slots, self.later.slots),
        )
        self._saved = (
            self.queues.held.copy(),
            self.queues.stays.copy(),
            dict(self.queues.users),
            dict(base.classes),
        )
        self.licences = dict(base.licences)
        self.evictions: list[Eviction] = []
        self.started: dict[str, list[Slot]] = {}
        self.grown: dict[str, list[Slot]] = {}
        self.reserved: dict[str, list[Task]] = {}
        """Slots on releasing capacity, by job."""
        self.present: dict[str, list[Task]] = {}
        """Of jobs that changed in this decision."""
        self.codes: dict[str, tuple[str, dict[str, Any]]] = {}

    # reading

    def tasks(self, job: JobState) -> list[Task]:
        """Tasks of the job that are there to stay, evictions of this decision left out."""
        return self.present.get(job.name, job.present)

    def refused(self, job: JobState, load: Floats, *, now: bool) -> Refusal | None:
        """The first limit that the load would exceed."""
        return next(self.queues.refusals(job.queue, job.row.user, load, now=now), None)

    def cluster_shared(self, name: str) -> int:
        """Licences in all."""
        return self.base.cluster.shared.get(name, 0)

    def lacks_licence(self, job: JobState) -> str:
        """A licence of which too little is left to start the job."""
        if job.row.tasks:
            return ""
        return next(
            (name for name, ask in job.row.shared.items() if self.licences.get(name, 0) < ask), ""
        )

    def units(self) -> Units:
        """What may be evicted, as rows say."""
        return self.base.units()

    def fresh_units(self) -> Units:
        """The same of jobs that changed in this decision, as they are now."""
        jobs = {
            name: replace(self.jobs[name], present=tasks, part=None)
            for name, tasks in sorted(self.present.items())
            if self.jobs[name].row.tasks
        }
        index = self.nodes.index
        return Units(jobs, index, len(self.nodes.rows), len(self.queues.resources))

    # changing

    def mark(self) -> Any:
        """For `rollback`."""
        return (
            (self.idle.mark(), self.later.mark(), self.free.mark()),
            (self.queues.held.copy(), self.queues.stays.copy(), dict(self.queues.users)),
            dict(self.base.classes),
            list(self.evictions),
            dict(self.present),
            dict(self.reserved),
            dict(self.licences),
        )

    def rollback(self, mark: Any) -> None:
        """Undo all actions since the mark."""
        books, usage, classes, evictions, present, reserved, licences = mark
        for book, at in zip((self.idle, self.later, self.free), books, strict=True):
            book.rollback(at)
        self.queues.held, self.queues.stays, self.queues.users = usage
        self.queues.changes += 1
        self.base.classes = classes
        self.evictions[:] = evictions
        self.present, self.reserved, self.licences = present, reserved, licences

    def close(self) -> None:
        """Leave the base as it was when the decision began."""
        self.idle.rollback(self._begun[0])
        self.later.rollback(self._begun[1])
        self.queues.held, self.queues.stays, self.queues.users, self.base.classes = self._saved

    def sync(self, nodes: Iterable[int]) -> None:
        """What may be used at once is the less of what is idle and what is later free."""
        for node in set(nodes):
            self.free.put(
                node,
                np.minimum(self.idle.amounts[node], self.later.amounts[node]),
                np.minimum(self.idle.slots[node], self.later.slots[node]),
            )

    def start(self, job: JobState, slots: Sequence[Slot], code: str = "Started") -> None:
        """The slots were taken in `free`; they are now in use."""
        for slot in slots:
            request = job.requests[slot.role]
            self.idle.change(slot.node, request, slot.gpus, -1)
            self.later.change(slot.node, request, slot.gpus, -1)
        counts = [0] * len(job.requests)
        for slot in slots:
            counts[slot.role] += 1
        fresh = not job.row.tasks and job.name not in self.started
        load = job.load(counts, new=fresh)
        self.queues.add(job.queue, job.row.user, load, held=True)
        self.base.count_stays(job, load)
        if fresh:
            for name, ask in job.row.shared.items():
                self.licences[name] = self.licences.get(name, 0) - ask
        if job.row.tasks:
            self.grown.setdefault(job.name, []).extend(slots)
            self.codes.setdefault(job.name, ("Grown", {}))
        else:
            self.started.setdefault(job.name, []).extend(slots)
            self.codes.setdefault(job.name, (code, {}))

    def release(self, job: JobState) -> list[Slot]:
        """Slots that were reserved for the job are not any more."""
        slots = self._slots(job, job.row.reserved)
        counts = [0] * len(job.requests)
        for slot in slots:
            counts[slot.role] += 1
            if slot.node >= 0:
                self.later.change(slot.node, job.requests[slot.role], slot.gpus, +1)
        self.base.count_stays(job, -job.load(counts, new=not job.present))
        self.sync(slot.node for slot in slots if slot.node >= 0)
        return slots

    def _slots(self, job: JobState, tasks: Iterable[Task]) -> list[Slot]:
        index = self.nodes.index
        ordered = sorted(tasks, key=_order)
        return [Slot(job.role(task.role), index.get(task.node, -1), task.gpus) for task in ordered]

    def reserve(self, job: JobState, slots: Sequence[Slot], tasks: Sequence[Task] | None = None) -> None:
        """The slots were taken in `later`: they are kept for the job until they are idle. `tasks`: all
        that are kept for it then, with those before."""
        counts = [0] * len(job.requests)
        for slot in slots:
            counts[slot.role] += 1
        more = job.name in self.reserved
        self.base.count_stays(job, job.load(counts, new=not more and not self.tasks(job)))
        self.sync(slot.node for slot in slots)
        self.reserved[job.name] = self.number(job, slots) if tasks is None else sorted(tasks, key=_order)
        for name, ask in () if more or job.row.tasks else job.row.shared.items():
            self.licences[name] = self.licences.get(name, 0) - ask

    def evict(
        self,
        job: JobState,
        tasks: Sequence[Task],
        code: str,
        beneficiary: str = "",
        **evidence: Any,
    ) -> Eviction:
        """The tasks stop; their capacity is releasing from now on."""
        present = self.tasks(job)
        gone = {(task.role, task.index) for task in tasks}
        left = [task for task in present if (task.role, task.index) not in gone]
        self.present[job.name] = left
        counts = [0] * len(job.requests)
        nodes: list[int] = []
        for task in tasks:
            role = job.role(task.role)
            counts[role] += 1
            at = self.nodes.index.get(task.node)
            if at is not None:
                self.later.change(at, job.requests[role], task.gpus, +1)
                nodes.append(at)
        self.base.count_stays(job, -job.load(counts, new=not left))
        self.sync(nodes)
        found = Eviction(
            job.name, list(tasks), code, beneficiary, whole=not left, evidence=dict(evidence)
        )
        self.evictions.append(found)
        return found

    # the plan

    def number(self, job: JobState, slots: Iterable[Slot], used: Iterable[Task] = ()) -> list[Task]:
        """Slots as tasks: each role's lowest free indices."""
        taken: dict[str, set[int]] = {role.name: set() for role in job.row.roles}
        for task in (*job.row.tasks, *used):
            taken[task.role].add(task.index)
        found: list[Task] = []
        for slot in slots:
            role = job.row.roles[slot.role].name
            index = next(at for at in range(len(taken[role]) + 1) if at not in taken[role])
            taken[role].add(index)
            found.append(
                Task(role=role, index=index, node=self.nodes.rows[slot.node].name, gpus=slot.gpus)
            )
        return found

    def steps(self) -> list[Any]:
        """Actions in their safe order: reserve, release, start."""
        found: list[Any] = []
        for eviction in self.evictions:
            job = self.jobs[eviction.job]
            common: dict[str, Any] = {
                "job": job.name,
                "code": eviction.code,
                "evidence": eviction.evidence,
                "tasks": tuple(sorted(eviction.tasks, key=_order)),
                "beneficiary": eviction.beneficiary,
            }
            if eviction.to is not None:
                to = self.moved(job, eviction)
                found.append(Move(**common, to=tuple(to)))
            elif eviction.whole:
                found.append(Preempt(**common))
            else:
                found.append(Shrink(**common))
        for kind, slots in ((Start, self.started), (Grow, self.grown)):
            for name, each in slots.items():
                job = self.jobs[name]
                code, evidence = self.codes.get(name, ("Started", {}))
                tasks = tuple(self.number(job, each))
                found.append(kind(job=name, code=code, evidence=evidence, tasks=tasks))
        return found

    def moved(self, job: JobState, eviction: Eviction) -> list[Task]:
        """The tasks of a move where they start again."""
        assert eviction.to is not None
        by_role: dict[str, list[Task]] = {}
        for task in sorted(eviction.tasks, key=_order):
            by_role.setdefault(task.role, []).append(task)
        found: list[Task] = []
        for slot in eviction.to:
            role = job.row.roles[slot.role].name
            old = by_role[role].pop(0)
            node = self.nodes.rows[slot.node].name
            found.append(Task(role=role, index=old.index, node=node, gpus=slot.gpus))
        return found


def _order(task: Task) -> tuple[str, int]:
    return task.role, task.index


def held_seconds(job: Job, now: Stamp) -> float:
    """GPU seconds that a restart would lose, at most."""
    gpus = sum(len(task.gpus) or 1 for task in job.present)
    return max(0.0, now - job.since) * gpus


def ends_at(job: Job, now: Stamp) -> float:
    """When its capacity is back at the latest."""
    start = job.since if job.tasks else now
    return start + job.longest_seconds if not math.isinf(job.longest_seconds) else math.inf
