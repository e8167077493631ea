"""Node-hours and GPU-hours that are used up for good, and the reason that holds a job once they are.

What runs when a budget ends may overdraw it: it is left to end, or stopped after a signal and a grace
(`backfill.limits`). Unless wall times say beforehand what will be needed; then a job is held that could
not be paid to its end together with those that run (as Slurm's GrpTRESMins with its flag `safe`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal.schedule.shares.tree import Tree

__all__ = ["Budget", "Held", "charged", "exhausted_at", "held", "spent_at"]

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


def exhausted_at(budget: Budget) -> float:
    """When the last hour is spent at the present rate, or was: an instant that does not move with the
    clock. Minus infinity if nothing was left by `at`, infinity if it never will be."""
    left = budget.hours - budget.spent_hours
    if left <= _slack(budget):
        return -math.inf
    if budget.rate <= 0:
        return math.inf
    return budget.at + left * budget.per_unit / budget.rate * _HOUR


def charged(
    tree: Tree, budgets: Sequence[Budget], queue: int, user: str, ask: Sequence[float]
) -> list[int]:
    """The budgets, by place, that pay for what a job of this queue and user asks for (r,): those of a
    queue on the way to the top, of the user if they name one, and of a resource that it asks for."""
    path = tree.paths[queue]
    return [
        place
        for place, budget in enumerate(budgets)
        if ask[budget.resource] > 0 and budget.queue in path and budget.user in ("", user)
    ]


def held(
    tree: Tree,
    budgets: Sequence[Budget],
    queue: int,
    user: str,
    ask: Sequence[float],
    now: float,
    wall_seconds: float = math.inf,
) -> Held | None:
    """The first budget, in the order given, that holds a job of this queue and user back; None if none.
    It is one of those `charged`. `wall_seconds`: inf where the job has no limit."""
    for place in charged(tree, budgets, queue, user, ask):
        budget = budgets[place]
        spent = spent_at(budget, now)
        passed = spent - budget.spent_hours
        committed = max(0.0, budget.committed_hours - passed)
        amount = ask[budget.resource]
        needed = 0.0 if wall_seconds == math.inf else _hours(budget, amount, wall_seconds)
        used_up = spent >= budget.hours - _slack(budget)
        if used_up or (needed and spent + committed + needed > budget.hours + _slack(budget)):
            return Held(budget.name, budget.hours, spent, committed, needed)
    return None


def _hours(budget: Budget, amount: float, seconds: float) -> float:
    return amount / budget.per_unit * seconds / _HOUR


def _slack(budget: Budget) -> float:
    """Hours that rounding may make of nothing."""
    return _SLACK * max(1.0, budget.spent_hours)
