"""What elastic jobs may use of capacity that is kept for others, and until when.

Capacity reserved for a date is idle until then, and an elastic job can give it back in time because it
can shrink. So it may grow into whatever no planned job uses at any moment until it has to be back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.backfill.asks import Capacity, Settings
from shoal.schedule.backfill.plan import Plan, Profile

__all__ = ["Loan", "lending"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Loan:
    """Of one pool; what elastic jobs have there beyond their minimum counts as part of it."""

    until: Floats
    """(k,), ascending, the last infinity: the latest moments at which an elastic job begins to give
    back, which is `notice_seconds` before somebody needs it."""
    amounts: Ints
    """(r, k): what all elastic jobs of the pool together may hold beyond their minimum until then; each
    column at most the one before."""
    on_call: Ints
    """(r,): the part of the first column that a job without a date waits for, and may be asked back
    at any moment."""

    def at(self, instant: float) -> Ints:
        """(r,): what may still be held then. An elastic job that now grows for so long loses nothing."""
        column = min(int(np.searchsorted(self.until, instant, side="right")), len(self.until) - 1)
        return self.amounts[:, column]


def lending(plan: Plan, capacity: Capacity, settings: Settings) -> tuple[Loan, ...]:
    """One for each pool of `capacity`, from which, with `settings`, the plan was made."""
    rows = zip(plan.pools, plan.aside, capacity.surplus, strict=True)
    return tuple(_loan(*row, plan, settings) for row in rows)


def _loan(profile: Profile, aside: Ints, surplus: Ints, plan: Plan, settings: Settings) -> Loan:
    back = settings.grid(plan.now).up(plan.now + settings.notice_seconds)
    lent = np.where(profile.times < back, 1, 0)
    idle = np.maximum(profile.free + aside[:, np.newaxis] + np.outer(surplus, lent), 0)
    usable = np.minimum.accumulate(idle, axis=1)
    falls = np.flatnonzero((usable[:, 1:] < usable[:, :-1]).any(axis=0))
    until = np.append(profile.times[falls + 1] - settings.notice_seconds, math.inf)
    amounts = usable[:, np.append(falls, usable.shape[1] - 1)]
    return Loan(np.maximum(until, plan.now), amounts, np.minimum(aside, amounts[:, 0]))
