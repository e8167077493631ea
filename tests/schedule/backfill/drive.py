"""A small cluster in virtual time: jobs come, are planned, start, and end when they really do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shoal.schedule.backfill.asks import Capacity, Settings
from shoal.schedule.backfill.plan import Plan, Verdict, plan
from shoal.schedule.backfill.promises import Move, Promises, moves, promises_of
from tests.schedule.backfill.world import EXACT, FOREVER, Ask, Run, promised, running, waiting


@dataclass
class Job:
    """What a job asks for, and what it will really do."""

    ask: Ask
    came: float
    lasts: float
    """Seconds that it really runs."""
    started: float | None = None
    where: int = -1

    def run(self) -> Run:
        assert self.started is not None
        return Run(self.ask.amounts, self.started + self.ask.seconds, self.where, self.ask.shared)


@dataclass
class Drive:
    """Each step is one decision."""

    capacity: Capacity
    settings: Settings = EXACT
    arrange: Callable[[list[Job], float], list[Job]] = lambda jobs, now: jobs
    """The order in which waiting jobs are served, and what is changed about them."""
    queue: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    made: Plan | None = None
    _before: Promises | None = None

    def submit(self, jobs: Sequence[Job]) -> None:
        self.queue += [
            replace(
                job, ask=replace(job.ask, key=len(self.queue) + len(self.running) + len(self.done) + at)
            )
            for at, job in enumerate(jobs)
        ]

    def step(self, now: float) -> list[Move]:
        """End who ends, plan, start who starts. Which dates have moved later, and why."""
        ended = [job for job in self.running if job.started + job.lasts <= now]
        self.running = [job for job in self.running if job not in ended]
        self.done += ended
        self.queue = sorted(self.arrange(self.queue, now), key=lambda job: -job.ask.rank)
        asks = [job.ask for job in self.queue]
        work = running(self.capacity, *(job.run() for job in self.running))
        jobs = waiting(self.capacity, *asks)
        made = plan(self.capacity, work, jobs, self.settings, now)
        late = np.zeros(len(work.pool), dtype=np.bool_)
        found = (
            []
            if self._before is None
            else moves(self._before, made, self.capacity, work, jobs, self.settings, late)
        )
        self._before, self.made = promises_of(made, jobs, self.capacity), made
        for job, ask, verdict, pool in zip(
            self.queue, promised(asks, made), made.verdict.tolist(), made.pool.tolist(), strict=True
        ):
            given = verdict in (Verdict.START, Verdict.RESERVED)
            job.ask = ask if given else replace(ask, promised=FOREVER, promised_pool=-1)
            if verdict == Verdict.START:
                job.started, job.where = now, pool
                self.running.append(job)
        self.queue = [job for job in self.queue if job.started is None]
        return found

    def dates(self) -> dict[int, float]:
        """What is promised to those that wait, by key."""
        return {job.ask.key: job.ask.promised for job in self.queue if job.ask.promised < FOREVER}
