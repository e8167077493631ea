"""A series of harms to jobs of one system, and what is said about them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.elastic.jobs.job import Job, NotReached
from bench.elastic.plan import Plan
from bench.elastic.report import System
from bench.elastic.settings import Settings
from bench.elastic.spread import p50, p95
from bench.elastic.subjects import Subject
from bench.elastic.timeline import Harm, Recovery, recovery

__all__ = ["Harming", "Pauses", "pauses"]


def _replace(job: Job, made: Harm) -> None:
    job.replace(made.pid)


@dataclass(frozen=True)
class Harming:
    """How a job is harmed, and how that is undone before the next harm (also after the last, if
    `check`: because what comes then is part of the measurement)."""

    do: Callable[[Job, random.Random], Harm]
    undo: Callable[[Job, Harm], None] = _replace
    check: bool = False


_AFTER_SECONDS = 0.3


@dataclass
class Pauses:
    """All harms of one system in one situation."""

    situation: str
    system: str
    recoveries: list[Recovery] = field(default_factory=list[Recovery])
    failures: list[str] = field(default_factory=list[str])
    """Harms after which the job did not go on, and harms that it did not undo: one sentence each."""
    unrecovered: int = 0
    load: float = 0.0

    @property
    def lost(self) -> list[float]:
        """Seconds from each signal to the last survivor's next step, without that step."""
        return [each.lost_seconds for each in self.recoveries]

    @property
    def clean(self) -> bool:
        """Everything went on, in the same processes, with no step lost, discarded or made twice."""
        kept = all(not (each.redone or each.skipped or each.restarted) for each in self.recoveries)
        return bool(self.recoveries) and not self.failures and kept

    @property
    def bound(self) -> float:
        """The p95 of `lost`; infinite where one harm at least was not survived cleanly."""
        return p95(self.lost) if self.clean else float("inf")

    def line(self) -> System:
        """For the table of systems."""
        lost, found = self.lost, self.recoveries
        steps = [each.step_seconds for each in found]
        return System(
            self.situation,
            self.system,
            len(found) + self.unrecovered,
            len(found),
            p50(lost) if lost else None,
            p95(lost) if lost else None,
            max(lost, default=None),
            p50(steps) if steps else 0.0,
            self._remark(),
            self.load,
        )

    def short(self) -> str:
        """For a row: the median, and what else it cost."""
        if not self.recoveries:
            return f"{self.system}: did not go on"
        return f"{self.system} {p50(self.lost):.3g} s"

    def _remark(self) -> str:
        words: list[str] = []
        for name, what in (
            ("redone", "steps redone"), ("discarded", "passes discarded"), ("skipped", "steps lost"),
            ("restarted", "workers restarted"),
        ):  # fmt: skip
            if most := max((int(getattr(each, name)) for each in self.recoveries), default=0):
                words.append(f"<= {most} {what}")
        return ", ".join(words)


def pauses(
    plan: Plan, subject: Subject, situation: str, settings: Settings, world: int, harming: Harming
) -> Pauses:
    """Harm jobs of the subject as often as the plan wants, in as few jobs as the system can bear."""
    result = Pauses(situation, subject.name, load=os.getloadavg()[0])
    chance = plan.chance(f"{situation}/{subject.name}")
    left = subject.tries(plan)
    while left:
        fresh = plan.fresh(settings, f"{subject.name}")
        with subject.make(fresh, world) as job:
            try:
                job.wait_steady(world)
                left -= _harm_in_turn(job, subject, left, chance, harming, result)
            except NotReached as error:
                # the next harm needs a new job; that this one ended is part of the result
                result.failures.append(str(error))
                job.keep = True
                left -= 1
    result.load = max(result.load, os.getloadavg()[0])
    return result


def _harm_in_turn(
    job: Job, subject: Subject, most: int, chance: random.Random, harming: Harming, result: Pauses
) -> int:
    """Harm one job until it can bear no more; how often that was."""
    done = 0
    while done < most:
        made = harming.do(job, chance)
        done += 1
        found = _recovery(job, subject, made)
        if found is None:
            result.unrecovered += 1
            result.failures.append(
                f"{job.system}: no step after a loss within {subject.deadline_seconds:.0f} s"
            )
            job.keep = True
            break
        result.recoveries.append(found)
        if not (job.heals or job.joins) or (done == most and not harming.check):
            break
        if not job.heals:
            harming.undo(job, made)
        job.wait_steady(job.world, deadline_seconds=subject.deadline_seconds)
    return done


def _recovery(job: Job, subject: Subject, made: Harm) -> Recovery | None:
    try:
        job.wait(
            lambda: recovery(job.traces(), made) is not None,
            subject.deadline_seconds,
            "step after a loss",
        )
    except NotReached:
        return None
    time.sleep(_AFTER_SECONDS)  # steps that are made twice may come a little later
    return recovery(job.traces(), made)
