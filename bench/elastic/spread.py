"""Medians, percentiles and the interval of paired ratios. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.row import p50, p95

__all__ = ["Ratio", "p50", "p95", "percentile", "ratio"]

# two-sided 95 % points of Student's t by degrees of freedom; above, the normal distribution's
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262,
      10: 2.228, 12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980}  # fmt: skip
_NORMAL = 1.960


@dataclass(frozen=True)
class Ratio:
    """The geometric mean of ratios of pairs, and its 95 % interval."""

    mean: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.low:.3f} to {self.high:.3f}, {self.pairs} pairs"


def ratio(measured: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Of measured[i] / reference[i]; the interval is Student's on the logarithms, so it is as wide
    upwards as downwards in proportion. All values are positive.

    Raises:
        ValueError: fewer than two pairs, or different lengths.
    """
    if len(measured) != len(reference) or len(measured) < 2:
        raise ValueError(f"{len(measured)} and {len(reference)} values make no pairs")
    logs = [math.log(a / b) for a, b in zip(measured, reference, strict=True)]
    mean = statistics.fmean(logs)
    half = _t(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _t(freedom: int) -> float:
    """By the next smaller tabulated degrees of freedom: never too narrow."""
    if freedom > max(_T):
        return _NORMAL
    return _T[max(each for each in _T if each <= freedom)]
