"""Policies of others, carried out: each says which nodes a job should have, in units of one size.

A job that should have more starts or grows on idle capacity, or gets a reservation on releasing capacity
or on that of jobs which should have less. Jobs that should have less keep what no other job gets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shoal.objects.meta import Stamp
from shoal.schedule.allot import Allot, Contender, Nodes
from shoal.schedule.baselines.dragon import Dragon
from shoal.schedule.core.placement import place
from shoal.schedule.core.session import Session
from shoal.schedule.core.state import WHOLE, JobState, Request, Slot
from shoal.schedule.cycle.peers.named import STRICT
from shoal.schedule.cycle.rows import Role, Task
from shoal.schedule.cycle.sizes.outlook import check, elastic_role, remaining, run_seconds, speed

__all__ = ["Following"]

_SLACK = 1e-9


class _Unit:
    """The smallest task among all jobs: what sizes are counted in. Placement has the last word."""

    def __init__(self, pairs: Sequence[tuple[Request, Role]]) -> None:
        self.request, self.role = min(pairs, key=_size)

    def parts(self, request: Request) -> float:
        """How many units a task takes."""
        own = _thousandths(self.request)
        if own:
            return _thousandths(request) / own
        pairs = zip(request.amounts, self.request.amounts, strict=True)
        return max((ask / mine for ask, mine in pairs if mine), default=1.0)

    def width(self, request: Request) -> int:
        """The same in whole units, at least one."""
        return max(1, math.ceil(self.parts(request) - _SLACK))

    def units(self, job: JobState, counts: Sequence[int]) -> int:
        """Of so many tasks of each role, rounded: a helper beside large tasks is no unit."""
        pairs = zip(job.requests, counts, strict=True)
        return math.floor(sum(self.parts(each) * count for each, count in pairs) + 0.5)


def _size(pair: tuple[Request, Role]) -> tuple[int, tuple[int, ...], list[tuple[str, str]]]:
    request, role = pair
    return _thousandths(request), request.amounts, sorted(role.selector.items())


def _thousandths(request: Request) -> int:
    return request.share or WHOLE * request.gpus


@dataclass(frozen=True)
class _Place:
    """What the policy gives one job."""

    job: JobState
    nodes: Nodes
    wanted: tuple[int, ...]
    """Tasks by role."""


class Following:
    """One decision of a policy. `pending` are the jobs that limits allow to ask."""

    def __init__(self, session: Session, policy: Allot, pending: Sequence[JobState]) -> None:
        self._session, self._policy, self._pending = session, policy, pending
        self.victims: dict[str, list[str]] = {}
        """Jobs with a reservation on capacity of others, and these."""

    def run(self) -> None:
        """Apply what the policy says to the session."""
        places = self._asked()
        for at, each in enumerate(places):
            missing = self._missing(each.job, each.wanted)
            if not any(missing) or self._settled(each.job):
                continue
            served = self._serve(each, missing, places[:at] + places[at + 1 :])
            strict = self._session.rules.policy == STRICT
            if not served and strict and not self._tasks(each.job):
                return  # nodes are not as even as the policy sees them: the first stays first

    def again_at(self) -> Stamp | None:
        """When to ask the policy again though nothing has happened: DRAGON's head has waited for long
        enough, or it has been quiet for long enough."""
        session = self._session
        if not isinstance(self._policy, Dragon):
            return None
        left = [job.row.created for job in self._pending if not self._settled(job)]
        overdue = min(left, default=math.inf) + session.rules.patience_seconds
        moments = [] if overdue <= session.now else [overdue, self._policy.quiet_until]
        return min((each for each in moments if session.now < each < math.inf), default=None)

    # what the policy sees

    def _asked(self) -> list[_Place]:
        session = self._session
        waits = {job.name for job in self._pending}
        jobs = [
            job for job in session.jobs.values() if job.name in waits or self._tasks(job, reserved=True)
        ]
        if not jobs:
            return []
        jobs.sort(key=lambda job: (job.row.created, job.name))
        unit = _Unit([_main(job) for job in jobs])
        open_nodes = session.nodes.open & session.nodes.suits(unit.role)
        fits = np.where(open_nodes, session.later.counts(unit.request), 0)
        capacity: list[int] = fits.tolist()
        contenders: list[Contender] = []
        for job in jobs:
            nodes = self._units(unit, job)
            for node in nodes:
                capacity[node] += 1
            contenders.append(self._contender(unit, job, nodes))
        given = self._policy.allot(contenders, capacity, session.now)
        found: list[_Place] = []
        for job, contender in zip(jobs, contenders, strict=True):
            nodes = given.get(job.name, ())
            found.append(_Place(job, nodes, _counts(unit, job, contender, len(nodes))))
        return found

    def _units(self, unit: _Unit, job: JobState) -> Nodes:
        """Where it holds units; a job that holds anything holds one."""
        index = self._session.nodes.index
        tasks = [task for task in self._tasks(job, reserved=True) if task.node in index]
        found: list[int] = []
        for task in tasks:
            each = math.floor(unit.parts(job.requests[job.role(task.role)]) + 0.5)
            found += [index[task.node]] * each
        return tuple(sorted(found or [index[task.node] for task in tasks[:1]]))

    def _contender(self, unit: _Unit, job: JobState, nodes: Nodes) -> Contender:
        row = job.row
        check(row)
        size = max(1, unit.units(job, job.maximums))
        role = elastic_role(row)
        width = 1 if role is None else unit.width(job.requests[job.role(role.name)])
        tasks = sum(job.maximums) if role is None else role.maximum

        def step_seconds(units: int) -> float:
            fast = speed(row, max(1, units // width))
            return 1.0 / fast if fast > 0 else 1.0

        return Contender(
            name=job.name,
            submitted=row.created,
            size=size,
            least=max(1, unit.units(job, job.gang())),
            most=size,
            nodes=nodes,
            service=row.service(self._session.now),
            run_seconds=partial(run_seconds, row, tasks, self._session.now),
            step_seconds=step_seconds,
            steps_left=lambda: remaining(row) or 0.0,
            restart=row.restart_seconds,
        )

    # what becomes of it

    def _tasks(self, job: JobState, *, reserved: bool = False) -> list[Task]:
        """What the job holds, with what this decision started."""
        session = self._session
        started = [*session.started.get(job.name, ()), *session.grown.get(job.name, ())]
        found = [*session.tasks(job), *session.number(job, started)]
        return [*found, *session.reserved.get(job.name, ())] if reserved else found

    def _settled(self, job: JobState) -> bool:
        session, name = self._session, job.name
        changed = name in session.started or name in session.grown or name in session.reserved
        return changed or any(each.job == name for each in session.evictions)

    def _missing(self, job: JobState, wanted: Sequence[int]) -> list[int]:
        """As far as indices are left for it."""
        there, leaving = [0] * len(wanted), [0] * len(wanted)
        for task in self._tasks(job):
            there[job.role(task.role)] += 1
        for task in job.row.tasks:
            leaving[job.role(task.role)] += task.stopping
        rows = zip(wanted, job.maximums, leaving, there, strict=True)
        return [max(0, min(count, most - gone) - held) for count, most, gone, held in rows]

    def _serve(self, wish: _Place, missing: list[int], others: Sequence[_Place]) -> bool:
        session, job = self._session, wish.job
        load = job.load(missing, new=not job.row.tasks)
        if session.lacks_licence(job):
            return False
        starts = not any(task.stopping for task in job.row.tasks) or bool(job.present)
        if starts and session.refused(job, load, now=True) is None:
            slots = place(session.nodes, session.free, job, missing)
            if slots is not None:
                session.start(job, slots)
                return True
        if session.refused(job, load, now=False) is None:
            slots = place(session.nodes, session.later, job, missing)
            if slots is not None:
                session.reserve(job, slots)
                return True
        return self._take(job, missing, others)

    def _take(self, job: JobState, missing: list[int], others: Sequence[_Place]) -> bool:
        """Capacity of jobs that should have less, the first of them first, as far as it takes."""
        session = self._session
        mark = session.mark()
        leaving: dict[str, list[Task]] = {}
        for other, going in self._offers(others):
            session.evict(other, going, "Preempted", job.name)
            leaving.setdefault(other.name, []).extend(going)
            if self._fits(job, missing) is None:
                continue
            session.rollback(mark)
            for name, tasks in leaving.items():
                session.evict(session.jobs[name], tasks, "Preempted", job.name)
            slots = self._fits(job, missing)
            assert slots is not None
            session.reserve(job, slots)
            self.victims[job.name] = sorted(leaving)
            return True
        session.rollback(mark)
        return False

    def _fits(self, job: JobState, missing: list[int]) -> list[Slot] | None:
        session = self._session
        load = job.load(missing, new=not job.row.tasks)
        if session.refused(job, load, now=False) is not None:
            return None
        return place(session.nodes, session.later, job, missing)

    def _offers(self, others: Sequence[_Place]) -> Iterator[tuple[JobState, list[Task]]]:
        """What goes at once: a task, or all of a job that should have nothing."""
        session = self._session
        for each in others:
            job = each.job
            if self._settled(job) or job.row.suspended or not job.row.preemptible:
                continue
            surplus = self._surplus(each)
            if any(each.wanted):
                yield from ((job, [task]) for task in surplus)
            elif surplus and len(surplus) == len(session.tasks(job)):
                yield job, surplus

    def _surplus(self, wish: _Place) -> list[Task]:
        """Of each role: tasks on nodes that the job should leave first, then the highest indices."""
        session = self._session
        stays = [session.nodes.rows[node].name for node in wish.nodes]
        found: list[Task] = []
        for role, count in zip(wish.job.row.roles, wish.wanted, strict=True):
            mine = [task for task in session.tasks(wish.job) if task.role == role.name]
            left = list(stays)
            ranked: list[tuple[bool, int, Task]] = []
            for task in sorted(mine, key=lambda task: task.index):
                keeps = task.node in left
                if keeps:
                    left.remove(task.node)
                ranked.append((keeps, -task.index, task))
            ranked.sort(key=lambda each: each[:2])
            over = max(0, len(mine) - count)
            found += [task for _, _, task in ranked[:over] if task.preemptible]
        return found


def _main(job: JobState) -> tuple[Request, Role]:
    """What its size is counted in: the role that may be more or fewer, else its largest tasks."""
    role = elastic_role(job.row)
    if role is not None:
        return job.requests[job.role(role.name)], role
    pairs = zip(job.requests, job.row.roles, strict=True)
    return max(pairs, key=lambda pair: (pair[0].gpus, pair[0].share, pair[0].amounts))


def _counts(unit: _Unit, job: JobState, contender: Contender, units: int) -> tuple[int, ...]:
    """So many units as tasks of each role: the minimum at least, nothing for none."""
    least = job.gang()
    if not units:
        return (0,) * len(least)
    if units >= contender.size:
        return job.maximums
    left = units - contender.least
    counts: list[int] = []
    for request, low, high in zip(job.requests, least, job.maximums, strict=True):
        width = unit.width(request)
        more = max(0, min(high - low, left // width))
        left -= more * width
        counts.append(low + more)
    return tuple(counts)
