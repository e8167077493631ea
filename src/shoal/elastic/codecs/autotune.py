"""Which codec and bucket size to use here: a pure function of what was measured.

The same numbers give the same choice, on every rank. A codec loses accuracy, so it must be faster than
none by its price, in the middle of the trials and in most of them; what is measured slower is refused.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Choice", "Setting", "Trial", "choose", "price"]

_MOSTLY = 0.75
"""In this part of the paired trials the winner must have been faster."""


@dataclass(frozen=True, order=True)
class Setting:
    """A codec by its name in the catalogue, and the size of buckets (the fusion size)."""

    codec: str
    bucket_bytes: int


@dataclass(frozen=True)
class Trial:
    """Gradients of `size_bytes` (before coding) were exchanged in `seconds`; sums over ranks or means,
    as long as it is the same for all trials. Trials of one round follow each other closely."""

    setting: Setting
    round: int
    size_bytes: float
    seconds: float


@dataclass(frozen=True)
class Choice:
    """`speedup` over the baseline (1.0: the baseline itself); `reason`: one sentence per setting."""

    setting: Setting
    speedup: float
    reason: tuple[str, ...]


def price(codec: str, baseline: str = "none") -> float:
    """By which part of the time `codec` must be faster than `baseline` to be worth what it loses of
    accuracy: 0.02, the noise of a measurement, where it loses no more."""
    if codec in ("none", baseline):
        return 0.02
    return 0.25 if codec.startswith("powersgd") else 0.1


def choose(trials: Sequence[Trial], baseline: Setting) -> Choice:
    """The fastest setting that is worth its price, else the baseline.

    Settings are compared with the baseline within each round, since a machine's other load changes from
    one round to the next. Of equals the first in order wins.

    Raises:
        ValueError: the baseline was not measured, or a trial's numbers are not positive.
    """
    for trial in trials:
        if not (trial.seconds > 0 and trial.size_bytes > 0):
            raise ValueError(f"{trial} has no duration or no size")
    cost = {(t.setting, t.round): t.seconds / t.size_bytes for t in trials}
    if not any(setting == baseline for setting, _ in cost):
        raise ValueError(f"the baseline {baseline} was not measured")
    best, speedup = baseline, 1.0
    reasons: list[str] = []
    for setting in sorted({t.setting for t in trials} - {baseline}):
        pairs = [
            (cost[setting, r], cost[baseline, r])
            for s, r in sorted(cost)
            if s == setting and (baseline, r) in cost
        ]
        found = _compare(pairs)
        wanted = 1 / (1 - price(setting.codec, baseline.codec))
        label = f"{setting.codec} in buckets of {setting.bucket_bytes / (1 << 20):g} MiB"
        if not pairs:
            reasons.append(f"{label}: never measured beside the baseline")
        elif found.speedup < 1:
            reasons.append(f"{label}: refused, {1 / found.speedup:.2f} times as slow")
        elif found.speedup < wanted or found.won < _MOSTLY:
            reasons.append(
                f"{label}: refused, {found.speedup:.2f} times as fast in {found.won:.0%} of the rounds "
                f"({wanted:.2f} in {_MOSTLY:.0%} wanted)"
            )
        else:
            reasons.append(f"{label}: {found.speedup:.2f} times as fast")
            if found.speedup > speedup:
                best, speedup = setting, found.speedup
    return Choice(best, speedup, tuple(reasons))


@dataclass(frozen=True)
class _Comparison:
    speedup: float
    won: float


def _compare(pairs: Sequence[tuple[float, float]]) -> _Comparison:
    if not pairs:
        return _Comparison(0.0, 0.0)
    ratios = [other / own for own, other in pairs]
    return _Comparison(statistics.median(ratios), sum(ratio > 1 for ratio in ratios) / len(ratios))
