"""Instants are rounded up to a grid that is fine near now and coarser far out.

A plan over weeks is as good as the wall times in it, so a date a week ahead needs no second hand, and
the number of distinct instants is what planning costs. Steps are `resolution_seconds` wide for the first
`fine_steps` of them and twice as wide each time the distance doubles, so a span of `s` resolutions has
about `fine_steps * (1 + log2(s / fine_steps) / 2)` instants and a date is off by less than one part in
`fine_steps / 2`.

Steps are multiples of absolute time, each width a divisor of the next. As now moves on the steps ahead
only become finer, so an end that is rounded again is never later than it was: rounding alone moves no
promised date.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Grid"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Rounds instants in seconds as seen from `now`; a resolution of 0 leaves them as they are."""

    now: float
    resolution_seconds: float
    fine_steps: int = 512

    def up(self, instant: float) -> float:
        """The first instant of the grid that is not before this one; infinity stays."""
        if not self.resolution_seconds or instant == math.inf:
            return instant
        ahead = (instant - self.now) / (self.resolution_seconds * self.fine_steps)
        step = self.resolution_seconds
        if ahead > 1:
            mantissa, exponent = math.frexp(ahead)
            step = math.ldexp(step, exponent - (mantissa == 0.5))
        return math.ceil(instant / step) * step

    def all_up(self, instants: Floats) -> Floats:
        """`up` of each, (n,)."""
        if not self.resolution_seconds:
            return instants
        known = np.isfinite(instants)
        finite = instants[known]
        ahead = (finite - self.now) / (self.resolution_seconds * self.fine_steps)
        mantissa, exponent = np.frexp(np.maximum(ahead, 1.0))
        step = np.ldexp(self.resolution_seconds, exponent - (mantissa == 0.5))
        rounded = instants.copy()
        rounded[known] = np.ceil(finite / step) * step
        return rounded
