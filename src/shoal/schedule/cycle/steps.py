"""The plan: what is to be done, each with its reason and the numbers behind it.

Steps stand in an order that is safe to cut after any of them: reservations first, then what gives back,
then what starts on capacity that is free already.
"""

from __future__ import annotations

from typing import Any

from shoal.objects.meta import Part, Stamp
from shoal.schedule.cycle.rows import Task

__all__ = ["Deny", "Grow", "Move", "Plan", "Preempt", "Reserve", "Shrink", "Start", "Step"]


class Step(Part, frozen=True, kw_only=True, tag_field="step"):
    """One change of one job."""

    job: str
    code: str
    evidence: dict[str, Any] = {}


class Reserve(Step, frozen=True, kw_only=True, tag=True):
    """It waits, and something is kept for it: slots that others leave, a date, or both."""

    tasks: tuple[Task, ...] = ()
    at: Stamp | None = None
    """When it starts at the latest, if everybody keeps to what was said."""
    place: tuple[Task, ...] = ()
    """Where, then; what is there now goes on."""


class Shrink(Step, frozen=True, kw_only=True, tag=True):
    """These of its tasks stop; it goes on with the others."""

    tasks: tuple[Task, ...]
    beneficiary: str = ""


class Preempt(Step, frozen=True, kw_only=True, tag=True):
    """All of its tasks stop."""

    tasks: tuple[Task, ...]
    beneficiary: str = ""


class Move(Step, frozen=True, kw_only=True, tag=True):
    """All of its tasks stop, and start again where they have been given a place."""

    tasks: tuple[Task, ...]
    to: tuple[Task, ...]
    beneficiary: str


class Start(Step, frozen=True, kw_only=True, tag=True):
    """It held nothing, and gets these."""

    tasks: tuple[Task, ...]


class Grow(Step, frozen=True, kw_only=True, tag=True):
    """It gets these besides those that it has."""

    tasks: tuple[Task, ...]


class Deny(Step, frozen=True, kw_only=True, tag=True):
    """It waits: `code` is the first reason in their order, `evidence` names all that hold."""


class Plan(Part, frozen=True, kw_only=True):
    """Of one decision."""

    steps: tuple[Reserve | Shrink | Preempt | Move | Start | Grow | Deny, ...] = ()
    again_at: Stamp | None = None
    """When to decide again though nothing has happened."""
    order: tuple[str, ...] = ()
    """The jobs that asked for something, in the order in which they were considered."""
