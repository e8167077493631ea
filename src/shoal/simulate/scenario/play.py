"""Every decision of a scenario, carried out and compared with what is expected.

Decisions are made at `now`, with each event, when a job comes or ends, when tasks that were told to stop
have stopped (where the file says how long that takes), and when the plan itself asks for another; none
after `until`. A job that `lasts` ends so long after it last began.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from shoal.schedule.cycle.rows import Cluster, Job, Task
from shoal.schedule.cycle.steps import Move, Plan, Preempt, Shrink
from shoal.simulate.cluster.broken import Broken
from shoal.simulate.cluster.world import Plans, World
from shoal.simulate.errors import BadInput
from shoal.simulate.scenario.events import Event, Target
from shoal.simulate.scenario.judge import unmet
from shoal.simulate.scenario.whole import Scenario
from shoal.simulate.scenario.wishes import Expectation

__all__ = ["MOST_DECISIONS", "Decision", "decided_by", "play"]

MOST_DECISIONS = 10_000
"""Of one file; more are taken for a clock that stands still."""

_LEAST = 1e-6
"""Seconds between decisions that nothing but the plan asked for."""


@dataclass(frozen=True)
class Decision:
    """One plan, and what came of it."""

    at: float
    happened: tuple[str, ...]
    """What led to it, in words."""
    plan: Plan
    after: Cluster
    unmet: tuple[str, ...]
    """Sentences, where it did not come as the file expects."""


def play(scenario: Scenario, plans: Plans | None = None) -> list[Decision]:
    """In order of time; a plan that breaks a rule is the last. `plans` makes the decisions; by default
    the planner does. Raises `BadInput` for events about jobs that are not there."""
    stage = _Stage(scenario, plans)
    made: list[Decision] = []
    at, happened, expect = scenario.now, (), scenario.expect
    while True:
        decision, broken = stage.decide(at, happened, expect)
        made.append(decision)
        following = None if broken else stage.next_moment(at, decision.plan)
        if following is None:
            return made
        if len(made) == MOST_DECISIONS:
            raise BadInput(f"{scenario.name} takes more than {MOST_DECISIONS} decisions")
        at = following
        happened, expect = stage.pass_time(at)


def decided_by(scenario: Scenario, *, edition: int) -> Scenario:
    """The scenario, decided by that edition of the scheduling core."""
    rules = msgspec.structs.replace(scenario.rules, edition=edition)
    return dataclasses.replace(scenario, rules=rules)


class _Stage:
    """The world of one scenario, and what is still to come."""

    def __init__(self, scenario: Scenario, plans: Plans | None) -> None:
        self._file = scenario
        self._events = list(scenario.events)
        submitted = {id(entry) for event in scenario.events for entry in event.submit}
        first = [entry.job for entry in scenario.entries if id(entry) not in submitted]
        here = tuple(job for job in first if job.created <= scenario.now)
        self._arrivals = [job for job in first if job.created > scenario.now]
        self._lasts = {e.job.name: e.lasts for e in scenario.entries if e.lasts is not None}
        self._world = World(msgspec.structs.replace(scenario.cluster, jobs=here), scenario.rules, plans)
        self._leaving: dict[tuple[str, str, int], float] = {}
        for job in here:
            self._told(scenario.now, job.name, (task for task in job.tasks if task.stopping))

    def decide(
        self, at: float, happened: tuple[str, ...], expect: Expectation | None
    ) -> tuple[Decision, bool]:
        """What is decided now, and whether that broke a rule."""
        plan = self._world.plan(at)
        wrong: list[str] = []
        broken = False
        try:
            self._world.apply(plan, at)
        except Broken as error:
            broken = True
            wrong.append(f"{self._file.name}: at {at:g} s the plan breaks a rule: {error.message}")
        after = self._world.cluster
        if expect is not None:
            wrong += unmet(expect, plan, after)
        for step in plan.steps:
            if isinstance(step, Shrink | Preempt | Move):
                self._told(at, step.job, step.tasks)
        return Decision(at, happened, plan, after, tuple(wrong)), broken

    def next_moment(self, at: float, plan: Plan) -> float | None:
        """None where nothing is to come, or not before the end."""
        moments = [*self._leaving.values(), *(end for _, end in self._endings())]
        if self._events:
            moments.append(self._events[0].at)
        moments += [job.created for job in self._arrivals]
        if plan.again_at is not None:
            moments.append(max(plan.again_at, at + _LEAST))
        soonest = min(moments, default=None)
        return None if soonest is None or soonest > self._file.until else max(soonest, at)

    def pass_time(self, at: float) -> tuple[tuple[str, ...], Expectation | None]:
        """What happens by then, in words, and what is expected of the decision that follows."""
        said: list[str] = []
        for (job, role, index), when in list(self._leaving.items()):
            if when <= at:
                self._gone(job, lambda task, key=(role, index): (task.role, task.index) == key)
                said.append(f"{job}/{role}-{index} is gone")
        for name, end in self._endings():
            if end <= at:
                self._world.finish(name, at)
                self._forget(name)
                said.append(f"{name} ends")
        for job in sorted(self._arrivals, key=lambda job: job.created):
            if job.created <= at:
                self._arrivals.remove(job)
                self._world.submit(job)
                said.append(f"{job.name} comes")
        if not self._events or self._events[0].at > at:
            return tuple(said), None
        event = self._events.pop(0)
        said += self._happen(event, at)
        return tuple(said), event.expect

    def _happen(self, event: Event, at: float) -> Iterable[str]:
        for name in list(self._world.jobs) if event.all_gone else ():
            self._gone(name, lambda _: True)
        if event.all_gone:
            yield "who was told to stop is gone"
        for target in event.gone:
            self._job(target)
            self._gone(
                target.name, lambda task, who=target: who.indices is None or task.index in who.indices
            )
            yield f"tasks of {target.name} are gone"
        for target in event.finish:
            self._job(target)
            self._world.finish(target.name, at)
            self._forget(target.name)
            yield f"{target.name} ends"
        for target in event.cancel:
            self._told(at, target.name, self._job(target).present)
            self._world.cancel(target.name)
            yield f"{target.name} is cancelled"
        for target in event.lose:
            self._world.lose(target.name, at)
            yield f"{target.name} is lost"
        for target in event.silent:
            self._world.silent(target.name)
            yield f"{target.name} falls silent"
        for target in event.back:
            self._world.back(target.name)
            yield f"{target.name} is back"
        for target in event.resize:
            self._resize(target)
            yield f"{target.name} may have {target.maximum} tasks"
        for entry in event.submit:
            if entry.job.created > at:
                self._arrivals.append(entry.job)
                continue
            self._world.submit(entry.job)
            yield f"{entry.job.name} comes"

    def _job(self, target: Target) -> Job:
        job = self._world.jobs.get(target.name)
        if job is None:
            raise target.spot.wrong(f"there is no job {target.name} by then")
        return job

    def _resize(self, target: Target) -> None:
        roles = [role.name for role in self._job(target).roles]
        if target.role and target.role not in roles:
            raise target.spot.wrong(f"{target.name} has no role {target.role}")
        if not target.role and len(roles) > 1:
            raise target.spot.wrong(f"which role of {target.name}? {', '.join(roles)}")
        self._world.resize(target.name, target.role or roles[0], target.maximum)

    def _gone(self, name: str, which: Callable[[Task], bool]) -> None:
        stopping = [task for task in self._world.jobs[name].tasks if task.stopping and which(task)]
        for task in stopping:
            self._leaving.pop((name, task.role, task.index), None)
        self._world.gone(name, stopping)

    def _told(self, at: float, name: str, tasks: Iterable[Task]) -> None:
        """Tasks that stop from now on, where the file says how long that takes."""
        if self._file.stops is not None:
            for task in tasks:
                self._leaving[name, task.role, task.index] = at + self._file.stops

    def _forget(self, name: str) -> None:
        for key in [key for key in self._leaving if key[0] == name]:
            del self._leaving[key]

    def _endings(self) -> list[tuple[str, float]]:
        """When jobs that last so long end, of those that run."""
        jobs = ((self._world.jobs.get(name), lasts) for name, lasts in self._lasts.items())
        return [(job.name, job.since + lasts) for job, lasts in jobs if job is not None and job.present]
