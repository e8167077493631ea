"""One way to harm a job, for Shoal and its peers: the row of the goal, and a line for each system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.elastic.jobs.job import Job
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.pauses import Harming, Pauses, pauses
from bench.elastic.plan import Plan
from bench.elastic.report import Report
from bench.elastic.settings import Settings
from bench.elastic.spread import p50
from bench.elastic.subjects import Subject, subjects
from bench.row import Row

__all__ = ["Situation", "measured", "measured_for"]


_SMALL = Settings("")


@dataclass(frozen=True)
class Situation:
    """What happens to a job of `world` workers, and the goal for the pause, in seconds (p95)."""

    number: str
    what: str
    goal: float
    world: int
    harming: Harming
    settings: Settings = _SMALL
    share: float = 1.0
    """Of the plan's harms."""


def measured(plan: Plan, situation: Situation, peers: Sequence[type[Job]]) -> Report:
    """For Shoal and these peers."""
    return measured_for(plan, situation, subjects(plan, peers))


def measured_for(plan: Plan, situation: Situation, subjects: Sequence[Subject]) -> Report:
    """For these systems; the row is Shoal's."""
    plan = replace(plan, kills=max(1, round(plan.kills * situation.share)))
    found = [
        pauses(plan, each, situation.what, situation.settings, situation.world, situation.harming)
        for each in subjects
    ]
    return Report(
        [_row(situation, ours, found) for ours in found if ours.system == Shoal.system],
        [each.line() for each in found],
        [f"- {each.situation}: {failure}" for each in found for failure in each.failures],
    )


def _row(situation: Situation, ours: Pauses, found: list[Pauses]) -> Row:
    beside = "; ".join(each.short() for each in found if each is not ours)
    spread = f"of {len(ours.recoveries)}: no clean one"
    if ours.lost:
        middle, step = p50(ours.lost), p50([each.step_seconds for each in ours.recoveries])
        spread = f"p95 of {len(ours.lost)}; p50 {middle:.3f}, a step {step * 1000:.0f} ms"
    number, goal = situation.number, situation.goal
    return Row(situation.what, goal, ours.bound, "s", spread, beside, load=ours.load, number=number)
