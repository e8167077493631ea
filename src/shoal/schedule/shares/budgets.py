"""Node-hours and GPU-hours that are used up for good, and the reason that holds a job once they are.

Jobs that run are left to end: their hours are counted as they pass, so a budget may be overdrawn by what
runs when it ends, unless wall times say beforehand what they will need; then a job is held that could
not be paid to its end together with those that run (as Slurm's GrpTRESMins with its flag `safe`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.schedule.shares.tree import Tree

__all__ = ["Budget", "Held", "exhausted_at", "held", "spent_at"]

_HOUR = 3600.0
_SLACK = 1e-9


@dataclass(frozen=True)
class Budget:
    """Of a queue and all below it, or of one user there."""

    name: str
    queue: int
    resource: int
    """Which of the amounts costs: the column of GPUs, or of nodes."""
    hours: float
    spent_hours: float
    """By `at`."""
    at: float = 0.0
    """Seconds since the epoch."""
    rate: float = 0.0
    """In use since then."""
    committed_hours: float = 0.0
    """What running jobs may still use up to their wall times, from `at` on; 0 where none is stated."""
    per_unit: float = 1.0
    """Amounts that make one unit: 1000 where a GPU is counted in thousandths."""
    user: str = ""
    """Empty: all users."""


@dataclass(frozen=True)
class Held:
    """A job waits until the budget is raised."""

    budget: str
    hours: float
    spent_hours: float
    committed_hours: float
    """What running jobs may still use."""
    needed_hours: float
    """By this job up to its wall time; 0 where it has none."""


def spent_at(budget: Budget, now: float) -> float:
    """Hours spent by then at the present rate; not less than by `at`."""
    return budget.spent_hours + _hours(budget, budget.rate, max(0.0, now - budget.at))


def exhausted_at(budget: Budget, now: float) -> float:
    """When the last hour is spent at the present rate: `now` if it is, inf if it never will be."""
    left = budget.hours - spent_at(budget, now)
    if left <= _SLACK * max(1.0, budget.hours):
        return now
    if budget.rate <= 0:
        return float("inf")
    return now + left * budget.per_unit / budget.rate * _HOUR


def held(
    tree: Tree,
    budgets: Sequence[Budget],
    queue: int,
    user: str,
    ask: Sequence[float],
    now: float,
    wall_seconds: float = float("inf"),
) -> Held | None:
    """The first budget, in the order given, that holds a job of this queue and user back; None if none.

    A budget counts if it is of a queue on the way to the top, and of the user if it names one, and if
    the job asks (r,) for its resource. `wall_seconds`: inf where the job has no limit.
    """
    path = tree.paths[queue]
    for budget in budgets:
        amount = ask[budget.resource]
        if amount <= 0 or budget.queue not in path or budget.user not in ("", user):
            continue
        spent = spent_at(budget, now)
        passed = spent - budget.spent_hours
        committed = max(0.0, budget.committed_hours - passed)
        needed = 0.0 if wall_seconds == float("inf") else _hours(budget, amount, wall_seconds)
        slack = _SLACK * max(1.0, budget.hours)
        used_up = spent >= budget.hours - slack
        if used_up or (needed and spent + committed + needed > budget.hours + slack):
            return Held(budget.name, budget.hours, spent, committed, needed)
    return None


def _hours(budget: Budget, amount: float, seconds: float) -> float:
    return amount / budget.per_unit * seconds / _HOUR
