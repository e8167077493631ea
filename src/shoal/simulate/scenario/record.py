"""A decision as one record, for programs and for tables."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.steps import Move, Reserve, Step
from shoal.schedule.cycle.words import say
from shoal.simulate.scenario.judge import kind_of, tasks_of
from shoal.simulate.scenario.play import Decision
from shoal.simulate.scenario.whole import Scenario

__all__ = ["Record", "Slot", "StepRecord", "record_of"]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One task."""

    role: str
    index: int
    node: str
    gpus: tuple[int, ...]


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a plan."""

    step: str
    job: str
    tasks: tuple[Slot, ...]
    to: tuple[Slot, ...]
    """Of what moves."""
    at: float | None
    """Of a reservation."""
    beneficiary: str
    code: str
    reason: str
    """In words."""
    remedy: str
    """What would change it."""
    evidence: dict[str, Any]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of one file; times in seconds on its clock."""

    scenario: str
    at: float
    happened: tuple[str, ...]
    steps: tuple[StepRecord, ...]
    again_at: float | None
    unmet: tuple[str, ...]


def record_of(scenario: Scenario, decision: Decision) -> Record:
    """Everything that is said of a decision."""
    return Record(
        scenario=scenario.name,
        at=decision.at,
        happened=decision.happened,
        steps=tuple(_step(step) for step in decision.plan.steps),
        again_at=decision.plan.again_at,
        unmet=decision.unmet,
    )


def _step(step: Step) -> StepRecord:
    said = say(step.code, step.evidence)
    return StepRecord(
        step=kind_of(step),
        job=step.job,
        tasks=_slots(tasks_of(step)),
        to=_slots(step.to) if isinstance(step, Move) else (),
        at=step.at if isinstance(step, Reserve) else None,
        beneficiary=getattr(step, "beneficiary", ""),
        code=step.code,
        reason=said.sentence,
        remedy=said.remedy,
        evidence=step.evidence,
    )


def _slots(tasks: tuple[Task, ...]) -> tuple[Slot, ...]:
    return tuple(
        Slot(role=task.role, index=task.index, node=task.node, gpus=task.gpus) for task in tasks
    )
