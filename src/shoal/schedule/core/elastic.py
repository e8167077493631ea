"""Sizes beyond minimums: surplus is divided by entitlement, inside a queue by what jobs gain.

Between queues and classes tasks go one by one. What the jobs of one queue and class that have curves
get together is divided once more by `schedule.sizing`: by speed, remaining work and restart cost.

Targets are computed in whole tasks over the capacity that minimums leave. Idle capacity is given out in
the same order; capacity above one job's target goes to a job below its own, all in one rebalancing.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.objects.meta import Stamp
from shoal.schedule.core.placement import place
from shoal.schedule.core.reservation import Profile
from shoal.schedule.core.session import Session
from shoal.schedule.core.sizing import SizedGroup, sized_role
from shoal.schedule.core.state import JobState

__all__ = ["REBALANCE_SECONDS", "Sizes"]

Floats = npt.NDArray[np.float64]
REBALANCE_SECONDS = 30.0
_SLACK = 1e-9
_Key = tuple[Any, ...]


class Sizes:
    """Grows and rebalances elastic jobs at the end of one decision."""

    def __init__(self, session: Session, profile: Profile) -> None:
        self.session, self.profile = session, profile
        self.again_at: Stamp | None = None
        self._evicted = {each.job for each in session.evictions}
        self._forced = {
            each.job for each in session.evictions if each.code != "Preempted" or each.to is not None
        }
        self.jobs = [job for job in session.jobs.values() if self._elastic(job)]
        self.targets: dict[str, int] = {}
        self._capped: dict[str, int] = {}
        """Targets of jobs with curves, beyond which they do not grow."""

    def run(self) -> None:
        """Grow on idle capacity, then exchange."""
        if all(self._count(job) >= sum(job.maximums) for job in self.jobs):
            return
        self.targets = self._entitled()
        self._grow()
        if any(self._count(job) < sum(job.maximums) for job in self.jobs):
            self._exchange()

    def _elastic(self, job: JobState) -> bool:
        """Running, or about to start on slots that were reserved in this decision."""
        session = self.session
        if job.row.suspended or sum(job.maximums) <= sum(job.gang()):
            return False
        if job.name in self._forced:
            return False
        if any(task.stopping for task in job.row.tasks):
            return False
        starts = job.name in session.started or job.name in session.reserved
        kept = job.row.tasks or job.row.reserved
        if job.name in session.reserved and (kept or sized_role(job) is None):
            return False
        return (bool(session.tasks(job)) or starts) and not any(job.missing(self._counts(job)))

    def _settled(self, job: JobState) -> bool:
        """Nothing was decided for it that it waits for."""
        return job.name not in self._evicted and job.name not in self.session.reserved

    def _counts(self, job: JobState) -> list[int]:
        counts = [0] * len(job.requests)
        for task in self.session.tasks(job):
            counts[job.role(task.role)] += 1
        for slot in (
            *self.session.started.get(job.name, ()),
            *self.session.grown.get(job.name, ()),
        ):
            counts[slot.role] += 1
        for task in self.session.reserved.get(job.name, ()):
            counts[job.role(task.role)] += 1
        return counts

    def _count(self, job: JobState) -> int:
        return sum(self._counts(job))

    # order

    def _gain(self, job: JobState, size: int) -> float:
        """Marginal speed-up of one more task: of its curve, else equal for all jobs and concave. `size`
        counts tasks of fixed roles (a coordinator) too; curves do not."""
        pairs = zip(job.minimums, job.maximums, strict=True)
        size -= sum(least for least, most in pairs if least == most)
        speeds = job.row.speeds
        if speeds and size < len(speeds) and size >= 1 and speeds[size - 1] > 0:
            return math.log(max(speeds[size], 1e-12) / speeds[size - 1])
        if speeds:
            return 0.0
        return math.log((size + 1) / size) if size else math.inf

    def _key(self, job: JobState, size: int, use: Floats, load: Floats) -> _Key:
        queues = self.session.queues
        path = queues.paths[job.queue]
        parts: list[Any] = []
        for each in reversed(path):
            after = use[each] + load
            inside = queues.within(each, after, load > _SLACK)
            share = queues.share(each, after)
            row = queues.rows[each]
            parts.append((not inside, -row.priority, -job.row.priority, share))
        return (tuple(parts), -job.row.priority, -self._gain(job, size), job.row.created, job.name)

    def _divide(
        self, use: Floats, sizes: dict[str, int], fits: Callable[[JobState, int, Floats], bool]
    ) -> None:
        """Give tasks one at a time to the job that is first by entitlement; `sizes` and `use` change."""
        heap: list[tuple[_Key, str]] = []
        paths = self.session.queues.paths
        jobs = {job.name: job for job in self.jobs}
        for job in self.jobs:
            if job.name in sizes and (found := self._next(job, sizes[job.name], use)) is not None:
                heapq.heappush(heap, (found, job.name))
        while heap:
            key, name = heapq.heappop(heap)
            job = jobs[name]
            now = self._next(job, sizes[name], use)
            if now is None:
                continue
            if now != key:
                heapq.heappush(heap, (now, name))
                continue
            roles = self._roles(job, sizes[name])
            role = next((each for each in roles if fits(job, each, job.loads[each])), None)
            if role is None:
                continue
            sizes[name] += 1
            use[paths[job.queue]] += job.loads[role]
            if (following := self._next(job, sizes[name], use)) is not None:
                heapq.heappush(heap, (following, name))

    def _next(self, job: JobState, size: int, use: Floats) -> _Key | None:
        if size >= self._capped.get(job.name, sum(job.maximums)) or self._gain(job, size) <= 0.0:
            return None
        return self._key(job, size, use, job.loads[self._role(job, size)])

    def _role(self, job: JobState, size: int) -> int:
        return self._roles(job, size)[0]

    def _roles(self, job: JobState, size: int) -> list[int]:
        """Roles that the next task may be of, in order."""
        counts = self._counts(job)
        beyond = max(0, size - sum(counts))
        growing = [at for at, most in enumerate(job.maximums) if most > job.minimums[at]]
        found = [at for at in growing if counts[at] + beyond < job.maximums[at]]
        return found or growing[-1:] or [0]

    # growth

    def _grow(self) -> None:
        session = self.session
        growing = [job for job in self.jobs if self._settled(job)]
        limits = {job.name: self._limits(job) for job in growing}
        use = session.queues.stays

        def fits(job: JobState, role: int, load: Floats) -> bool:
            if session.refused(job, load, now=True) is not None:
                return False
            if not job.row.preemptible and not session.queues.claims_nominal(job.queue, load, use):
                return False
            counts = [0] * len(job.requests)
            counts[role] = 1
            slots = self._place(job, counts, limits[job.name])
            if slots is None:
                return False
            if job.name in session.started:
                session.codes.setdefault(job.name, ("Started", {}))
            session.start(job, slots)
            use[session.queues.paths[job.queue]] -= load  # counted by the caller
            return True

        self._divide(use, {job.name: self._count(job) for job in growing}, fits)

    def _place(self, job: JobState, counts: list[int], limits: Any) -> Any:
        """On free capacity, near what it has."""
        session = self.session
        kept = job.present
        job.present = [*session.tasks(job), *session.number(job, session.started.get(job.name, ()))]
        try:
            return place(session.nodes, session.free, job, counts, limits=limits)
        finally:
            job.present = kept

    def _limits(self, job: JobState) -> Any:
        """Surplus may use reserved nodes until it has to be recalled."""
        soon = self.session.now + self.session.rules.notice_seconds
        kept = self.profile.reservations
        recallable = job.row.preemptible
        self.profile.reservations = [
            each for each in kept if not recallable or (each.at <= soon and not math.isinf(each.until))
        ]
        try:
            return self.profile.limits(job, entitled=False)
        finally:
            self.profile.reservations = kept

    # exchange

    def _entitled(self) -> dict[str, int]:
        """Tasks that each elastic job is to have, in all."""
        session, queues = self.session, self.session.queues
        use = queues.stays.copy()
        pool = queues.capacity - sum(
            (queues.stays[at] for at in queues.children.get(-1, [])), np.zeros(len(queues.capacity))
        )
        sizes: dict[str, int] = {}
        for job in self.jobs:
            counts = self._counts(job)
            extra = [there - least for there, least in zip(counts, job.gang(), strict=True)]
            load: Floats = np.maximum(extra, 0) @ job.loads
            use[queues.paths[job.queue]] -= load
            pool = pool + load
            sizes[job.name] = sum(job.gang())
        for reservation in self.profile.reservations:
            if reservation.at <= session.now + session.rules.notice_seconds:
                pool = pool - reservation.load
        held = [pool]

        def fits(job: JobState, role: int, load: Floats) -> bool:
            del role
            if (load[:-1] > held[0][:-1] + 1e-6).any():
                return False
            path = queues.paths[job.queue]
            bound = np.minimum(queues.limit[path], queues.most_lent[path])
            if ((use[path] + load) > bound + 1e-6)[:, load > 0].any():
                return False
            held[0] = held[0] - load
            return True

        self._divide(use, sizes, fits)
        groups: dict[tuple[Any, ...], list[JobState]] = {}
        for job in self.jobs:
            if (role := sized_role(job)) is not None:
                nodes = id(session.nodes.suits(job.row.roles[role]))
                key = (job.queue, job.row.priority, job.requests[role], nodes)
                groups.setdefault(key, []).append(job)
        for key, jobs in groups.items():
            self._capped.update(SizedGroup(session, key, jobs).sizes(sizes))
        return {**sizes, **self._capped}

    def _exchange(self) -> None:
        session, targets = self.session, self.targets
        below = [job for job in self.jobs if self._count(job) < targets[job.name]]
        above = [job for job in self.jobs if self._count(job) > targets[job.name]]
        above = [job for job in above if job.row.preemptible and job.name not in session.started]
        below = [job for job in below if job.name not in self._evicted]
        if not below or not above:
            return
        below = [job for job in below if self._may_resize(job, first=True)]
        due = [job for job in above if self._may_resize(job, first=False)]
        shrinking: dict[str, int] = {}
        for receiver in below:
            wanted = targets[receiver.name] - self._count(receiver)
            donors = above if receiver.name in session.reserved else due  # the first target is exempt
            mark = session.mark()
            slots = list(self._receive(receiver, wanted, donors, targets, shrinking))
            if not slots:
                session.rollback(mark)
                continue
            session.reserve(receiver, slots, self._numbered(receiver, slots))

    def _numbered(self, receiver: JobState, slots: Any) -> Any:
        session = self.session
        kept = session.reserved.get(receiver.name, [])
        started = session.number(
            receiver, [*session.started.get(receiver.name, ()), *session.grown.get(receiver.name, ())]
        )
        return [*kept, *session.number(receiver, slots, [*started, *kept])]

    def _may_resize(self, job: JobState, *, first: bool) -> bool:
        last = self.session.now if job.name in self.session.grown else job.row.resized
        if last is None or (first and not self.session.tasks(job)):
            return True
        due = last + REBALANCE_SECONDS
        if self.session.now >= due:
            return True
        self.again_at = due if self.again_at is None else min(due, self.again_at)
        return False

    def _receive(
        self,
        receiver: JobState,
        wanted: int,
        above: list[JobState],
        targets: dict[str, int],
        shrinking: dict[str, int],
    ) -> Iterator[Any]:
        """Slots for the receiver, each made by shrinking donors that are furthest above their target."""
        session = self.session
        role = self._role(receiver, self._count(receiver))
        counts = [0] * len(receiver.requests)
        counts[role] = 1
        for _ in range(wanted):
            load = receiver.loads[role]
            found = None
            mark = session.mark()
            if receiver.name in session.reserved and session.refused(receiver, load, now=False) is None:
                found = place(session.nodes, session.later, receiver, counts)
                if found is not None:
                    yield from found
                    continue
            for donor, tasks in self._offers(above, targets):
                session_mark = session.mark()
                self._shrink(donor, tasks, receiver.name)
                if session.refused(receiver, load, now=False) is None:
                    found = place(session.nodes, session.later, receiver, counts)
                if found is not None:
                    shrinking[donor.name] = shrinking.get(donor.name, 0) + len(tasks)
                    break
                session.rollback(session_mark)
            if found is None:
                session.rollback(mark)
                return
            yield from found

    def _offers(self, above: list[JobState], targets: dict[str, int]) -> Iterator[tuple[JobState, Any]]:
        session = self.session
        for donor in sorted(above, key=lambda job: (targets[job.name] - self._count(job), job.name)):
            spare = self._count(donor) - targets[donor.name]
            if spare <= 0:
                continue
            present = {(task.role, task.index) for task in session.tasks(donor)}
            tasks = [task for task in donor.surplus() if (task.role, task.index) in present]
            for task in tasks:
                if task.preemptible:
                    yield donor, [task]
            by_node: dict[str, list[Any]] = {}
            for task in tasks[:spare] if len(tasks) > 1 else []:
                by_node.setdefault(task.node, []).append(task)
            for group in by_node.values():
                if len(group) > 1:
                    yield donor, group

    def _shrink(self, donor: JobState, tasks: Any, beneficiary: str) -> None:
        session = self.session
        before = next((each for each in session.evictions if each.job == donor.name), None)
        found = session.evict(donor, tasks, "Resized", beneficiary)
        if before is not None and before.beneficiary == beneficiary:
            session.evictions.remove(before)
            found.tasks = [*before.tasks, *tasks]
