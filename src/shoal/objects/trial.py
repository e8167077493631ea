"""The kind Trial: one point of an experiment's search space, and what came of it.

A Trial is the claim of a number: the experiment controller stores it before its Job is created, under a
name that follows from the experiment's uid and the number, and its point never changes. `spec.after`
(how many trials had ended) and `status.order` (the position of the trial among those that have ended)
record the order in which points were asked for and results came in, so that the same suggestions can be
computed again from what is stored. The controller alone writes all of this; but where the experiment
has no template, a program takes the trial (`worker`), evaluates it, and writes `values` or `failed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from shoal.objects.codec import changed_fields
from shoal.objects.columns import AGE, NAME, Column, age
from shoal.objects.experiment import EXPERIMENT_LABEL, Measured, rendered
from shoal.objects.kind import Kind, Outcome, State
from shoal.objects.meta import Name, Object, Part, Stamp
from shoal.objects.paths import Finding

__all__ = ["ENDED", "TRIAL", "Rung", "Trial", "TrialPhase", "TrialSpec", "TrialStatus"]

TrialPhase = Literal[
    "Pending", "Running", "Succeeded", "EarlyStopped", "Failed", "MetricsUnavailable", "Cancelled"
]
PHASES = (
    "Pending",
    "Running",
    "Succeeded",
    "EarlyStopped",
    "Failed",
    "MetricsUnavailable",
    "Cancelled",
)
ENDED = frozenset(PHASES[2:])
"""Phases that a trial does not leave."""


class TrialSpec(Part, frozen=True, kw_only=True):
    """The point, fixed at creation; and, in an experiment without a template, what came of it."""

    experiment: Name
    """The experiment's name."""
    number: int
    """From 0, in the order in which points were chosen."""
    parameters: dict[str, Any] = {}
    """The value of each parameter that exists at this point."""
    after: int = 0
    """How many trials of the experiment had ended when the point was chosen."""
    parent: str = ""
    """Population based training: this trial continues from the output of that job."""
    origin: Literal["algorithm", "point"] = "algorithm"
    """point: listed in the experiment's `points`."""
    worker: str = ""
    """Without a template: the program that has taken the trial; empty: it may be taken."""
    values: tuple[float, ...] = ()
    """Without a template: the result, one value for each objective."""
    failed: str = ""
    """Without a template: why the trial has no result; not empty: it has failed."""


class Rung(Part, frozen=True, kw_only=True):
    """The objective at a step at which trials are compared (successive halving)."""

    rung: int
    """The index of the rung."""
    value: Measured
    order: int = 0
    """Position among all rung results of the experiment."""


class TrialStatus(Part, frozen=True, kw_only=True):
    """Written by the experiment controller."""

    phase: TrialPhase = "Pending"
    reason: str = ""
    message: str = ""
    job: str = ""
    """The Job of its newest start."""
    job_uid: str = ""
    retries: int = 0
    """Starts after the first one, each after an infrastructure failure."""
    values: tuple[float, ...] = ()
    """Of the objectives, in their order; empty while there is none."""
    violations: tuple[float, ...] = ()
    """By how much each constraint is violated, in their order; at most 0: satisfied."""
    step: int = 0
    """The newest reported step."""
    latest: Measured | None = None
    """The newest reported value of the first objective; written every few seconds."""
    reports: int = 0
    """The order of the newest metric point that has been evaluated."""
    rungs: tuple[Rung, ...] = ()
    order: int = 0
    """Position among the ended trials of the experiment, from 1; 0: it has not ended."""
    node_seconds: float = 0.0
    started: Stamp = 0.0
    finished: Stamp = 0.0
    observed_generation: int = 0
    writers: dict[str, int] = {}


class Trial(Object, frozen=True, kw_only=True):
    """One point of an experiment's search space, run as a Job."""

    spec: TrialSpec
    status: TrialStatus = TrialStatus()
    kind: str = "Trial"


def _check(trial: Trial) -> Iterator[Finding]:
    if trial.spec.number < 0:
        yield Finding(("spec", "number"), f"must be at least 0; found {trial.spec.number}")
    if trial.metadata.labels.get(EXPERIMENT_LABEL, trial.spec.experiment) != trial.spec.experiment:
        yield Finding(("metadata", "labels", EXPERIMENT_LABEL), "names another experiment than spec")


def _check_change(old: Trial, new: Trial) -> Iterator[Finding]:
    changed = set(changed_fields(old.spec, new.spec))
    if changed - {"worker", "values", "failed"}:
        yield Finding(("spec",), "a trial cannot be changed: it is a point that was chosen")
    elif changed and old.status.phase in ENDED:
        yield Finding(("spec",), f"the trial has ended as {old.status.phase}")
    elif changed and old.status.job:
        yield Finding(("spec",), "the trial is run by a job: its result is what the job reports")
    elif old.spec.values and new.spec.values != old.spec.values:
        yield Finding(("spec", "values"), f"its result is written already: {_list(old.spec.values)}")
    if any(not math.isfinite(value) for value in new.spec.values):
        yield Finding(("spec", "values"), "a value is a finite number; write failed for no result")


def _list(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.6g}" for value in values)


def _values(trial: Trial, _now: float) -> str:
    if trial.status.values:
        return _list(trial.status.values)
    return "-" if trial.status.latest is None else f"{trial.status.latest:.6g}"


def _parameters(trial: Trial, _now: float) -> str:
    items = trial.spec.parameters.items()
    return " ".join(f"{name}={rendered(value)}" for name, value in items) or "-"


def _elapsed(trial: Trial, now: float) -> str:
    return age(trial.status.started, trial.status.finished or now)


def _state(trial: Trial) -> State:
    status = trial.status
    since = status.finished or status.started
    remedy = f"shoal explain job/{status.job}" if status.job and status.phase not in ENDED else ""
    return State(
        phase=status.phase, code=status.reason, message=status.message, since=since, remedy=remedy
    )


def _outcome(trial: Trial) -> Outcome | None:
    status = trial.status
    if status.phase not in ENDED:
        return None
    ended_well = status.phase in ("Succeeded", "EarlyStopped")
    return Outcome(
        result="succeeded" if ended_well else "cancelled" if status.phase == "Cancelled" else "failed",
        started=status.started,
        finished=status.finished,
        message="" if ended_well else status.message,
    )


TRIAL = Kind(
    name="Trial",
    plural="trials",
    struct=Trial,
    status_writers={"experiment": ("*",)},
    check=_check,
    check_change=_check_change,
    columns=(
        NAME,
        Column("PHASE", lambda obj, now: obj.status.phase),
        Column("VALUE", _values),
        Column("STEP", lambda obj, now: str(obj.status.step or "-")),
        Column("PARAMETERS", _parameters),
        Column("ELAPSED", _elapsed),
        AGE,
        Column("EXPERIMENT", lambda obj, now: obj.spec.experiment, wide=True),
        Column("JOB", lambda obj, now: obj.status.job or "-", wide=True),
        Column("RETRIES", lambda obj, now: str(obj.status.retries), wide=True),
        Column("MESSAGE", lambda obj, now: obj.status.message or "-", wide=True),
    ),
    phases=PHASES,
    state=_state,
    outcome=_outcome,
)
