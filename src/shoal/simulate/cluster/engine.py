"""The loop: what happens next happens, and then the planner decides.

Everything that happens at one instant happens before the decision of that instant. Jobs do work while
they have their gang; those told to go are gone after a while; nodes are lost. Time is virtual: a clock
is read for one thing alone, what a decision cost.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.rows import Job
from shoal.schedule.cycle.steps import Deny, Grow, Move, Plan, Preempt, Reserve, Shrink, Start
from shoal.simulate.cluster.broken import Broken
from shoal.simulate.cluster.faults import Faults
from shoal.simulate.cluster.progress import Progress
from shoal.simulate.cluster.record import Ran, Record, Sample
from shoal.simulate.cluster.work import Arrival
from shoal.simulate.cluster.world import WALL_TIME, World

__all__ = ["Options", "simulate"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What else is so, besides the jobs."""

    interval: float = 0.0
    """Seconds between decisions at least; 0: one at each instant at which something happens."""
    stop_seconds: float = 0.0
    """From being told to go to being gone."""
    restart_seconds: float = 0.0
    """A job that starts or changes its size does no work for so long."""
    noise: float = 0.0
    """Work differs from what is said by a log-normal factor of median 1 with this sigma."""
    seed: int = 0
    """Of the noise."""
    faults: Faults | None = None
    until: Stamp = math.inf
    """The run is given up then."""
    patience: int = 1000
    """So many decisions with an effect, and nothing from outside between them, are an exchange without
    end: `Broken` is raised."""


def simulate(world: World, arrivals: Sequence[Arrival], options: Options | None = None) -> Record:
    """Run `arrivals` on `world`, which is changed, until all have ended, or nothing can happen any more.

    Jobs that `world` has already are not run to an end: they are there, and stay. Raises `Broken`.
    """
    return _Run(world, arrivals, options or Options()).go()


class _Run:
    def __init__(self, world: World, arrivals: Sequence[Arrival], options: Options) -> None:
        self._world = world
        self._options = options
        self._record = Record()
        self._now: Stamp = 0.0
        self._queue: list[tuple[Stamp, int, Callable[[], None]]] = []
        self._sequence = 0
        self._changed = True
        self._again = 0
        self._woken: Stamp = -math.inf
        self._idle = 0
        self._work: dict[str, Progress] = {}
        self._coming = len(arrivals)
        chance = np.random.default_rng(options.seed)
        factors = np.exp(options.noise * chance.standard_normal(len(arrivals)))
        for arrival, factor in zip(arrivals, factors.tolist(), strict=True):
            self._later(arrival.at, lambda each=arrival, by=factor: self._arrives(each, by))
        self._losses: Iterator[tuple[Stamp, str, Stamp]] | None = None
        if options.faults is not None:
            self._losses = options.faults.times(list(world.nodes))
            self._next_loss()

    def go(self) -> Record:
        decided = -math.inf
        while self._queue and self._queue[0][0] <= self._options.until and self._open():
            self._to(self._queue[0][0])
            while self._queue and self._queue[0][0] <= self._now:
                heapq.heappop(self._queue)[2]()
            if not self._changed or not self._world.jobs:
                continue
            if self._now < decided + self._options.interval:
                self._changed = False
                self._wake(decided + self._options.interval)
                continue
            decided = self._now
            self._decide()
        self._record.ended_at = self._now
        return self._record

    def _open(self) -> bool:
        """Somebody is still to end. (Faults go on for ever.)"""
        return bool(self._coming or self._work)

    def _to(self, now: Stamp) -> None:
        passed = now - self._now
        if passed > 0:
            areas = self._record.areas
            for name, part in self._world.held.parts().items():
                areas[name] = areas.get(name, 0.0) + part * passed
        self._now = now

    def _later(self, at: Stamp, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (at, self._sequence, action))

    def _wake(self, at: Stamp) -> None:
        """Decide then, unless another time is said before."""
        if at == self._woken:
            return
        self._woken = at
        self._again += 1
        turn = self._again

        def awake() -> None:
            if turn == self._again:
                self._changed = True

        self._later(at, awake)

    def _from_outside(self) -> None:
        self._changed = True
        self._idle = 0

    def _arrives(self, arrival: Arrival, factor: float) -> None:
        self._coming -= 1
        name = arrival.job.name
        self._world.submit(arrival.job)
        self._record.jobs[name] = Ran(submitted=arrival.at)
        self._work[name] = Progress(arrival, arrival.seconds * factor)
        self._from_outside()

    def _next_loss(self) -> None:
        if self._losses is None:
            return
        at, node, back = next(self._losses)

        def lost() -> None:
            before = [job.name for job in self._world.jobs.values() if _on(job, node)]
            self._world.lose(node, self._now)
            for name in before:
                self._settle(name)
            self._later(back, returned)
            self._next_loss()
            self._from_outside()

        def returned() -> None:
            self._world.back(node)
            self._from_outside()

        self._later(at, lost)

    def _decide(self) -> None:
        world, record = self._world, self._record
        self._changed = False
        self._report()
        began = time.thread_time()
        plan = world.plan(self._now)
        record.decision_seconds.append(time.thread_time() - began)
        moved = self._carry_out(plan)
        self._idle = self._idle + 1 if moved else self._idle
        if self._idle > self._options.patience:
            raise Broken(f"{self._idle} decisions changed something, and nothing happened between them")
        waiting = sum(not job.tasks for job in world.jobs.values())
        record.samples.append(Sample(self._now, world.held.parts(), waiting))
        if plan.again_at is not None:
            if plan.again_at <= self._now:
                raise Broken(f"to decide again at {plan.again_at:g} is asked for at {self._now:g}")
            self._wake(plan.again_at)

    def _report(self) -> None:
        """Jobs that say how fast they are say how far they are, and how long their tasks have run."""
        every = self._world.rules.policy == "tiresias"
        jobs = self._world.jobs
        for name, progress in self._work.items():
            job = jobs[name]
            if every or job.speeds or job.work is not None:
                done = progress.arrival.progress(progress.done(self._now))
                self._world.report(name, done, progress.served(self._now))

    def _carry_out(self, plan: Plan) -> bool:
        """Whether anything changed but what those who wait are told."""
        moved = False
        self._world.apply(plan, self._now)
        self._record.steps.update(type(step).__name__ for step in plan.steps)
        for step in plan.steps:
            match step:
                case Reserve() | Deny():
                    continue
                case Start() | Grow():
                    self._settle(step.job)
                case Shrink() | Preempt() | Move():
                    self._leaves(step.job, step)
                    self._settle(step.job)
            moved = True
        return moved

    def _leaves(self, name: str, step: Shrink | Preempt | Move) -> None:
        ran = self._record.jobs.get(name)
        if ran is not None and not isinstance(step, Shrink) and step.code != WALL_TIME:
            ran.preemptions += 1

        def gone() -> None:
            if name not in self._world.jobs:
                return
            self._world.gone(name, step.tasks)
            self._changed = True  # and no more: an exchange without end consists of such news
            if name in self._world.jobs:
                self._settle(name)
            elif name in self._work:
                self._ended(name, timed_out=True)

        self._later(self._now + self._options.stop_seconds, gone)

    def _settle(self, name: str) -> None:
        """The job's tasks have changed: its work up to now is counted, and its end foreseen anew."""
        progress = self._work.get(name)
        if progress is None:
            return
        ran, job = self._record.jobs[name], self._world.jobs[name]
        worked = progress.speed > 0
        if not progress.turn_to(job, self._now, self._options.restart_seconds):
            return
        ran.lost_seconds = progress.lost
        if progress.speed and ran.started is None:
            ran.started = self._now
        elif progress.speed and worked:
            ran.changes += 1
        self._foresee(name, progress, job)

    def _foresee(self, name: str, progress: Progress, job: Job) -> None:
        turn, ends = progress.turn, progress.ends(self._now)
        over = math.inf
        if job.wall_seconds is not None and job.present:
            over = job.since + job.wall_seconds + job.grace_seconds

        def end() -> None:
            if turn != progress.turn:
                return
            self._world.finish(name, self._now)
            self._ended(name, timed_out=over < ends)
            self._from_outside()

        if min(ends, over) < math.inf:
            self._later(min(ends, over), end)

    def _ended(self, name: str, *, timed_out: bool) -> None:
        self._work.pop(name).turn += 1
        ran = self._record.jobs[name]
        ran.ended, ran.timed_out = self._now, timed_out


def _on(job: Job, node: str) -> bool:
    return any(task.node == node for task in job.tasks)
