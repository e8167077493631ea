"""Which codec and bucket size to use here: a pure function of what was measured.

The same numbers give the same choice, on every rank. A codec loses accuracy, so it must be faster than
none by its price, in the middle of the trials and in most of them; what is measured slower is refused.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["ONE_BUCKET", "Choice", "Setting", "Trial", "choose", "hopeless", "price"]

ONE_BUCKET = 1 << 62
"""The bucket size that is never reached."""

_MOSTLY = 0.75
"""In this part of the paired trials the winner must have been faster."""

_FAR_SLOWER = 1.3


@dataclass(frozen=True, order=True)
class Setting:
    """A codec by its name in the catalogue, and the size of buckets (the fusion size)."""

    codec: str
    bucket_bytes: int

    def __str__(self) -> str:
        return f"{self.codec} in {self.buckets}"

    @property
    def buckets(self) -> str:
        """Their size in words."""
        if self.bucket_bytes >= ONE_BUCKET:
            return "one bucket"
        return f"buckets of {self.bucket_bytes / (1 << 20):g} MiB"


@dataclass(frozen=True)
class Trial:
    """The same gradients were made and exchanged in `seconds`; a sum over steps and ranks, as many in
    all trials. Trials of one round follow each other closely."""

    setting: Setting
    round: int
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
    return 0.3 if codec.startswith("powersgd") else 0.2


def choose(trials: Sequence[Trial], baseline: Setting) -> Choice:
    """The fastest setting that is worth its price, else the baseline.

    Settings are compared with the baseline within each round, since a machine's other load changes from
    one round to the next. Of equals the first in order wins.

    Raises:
        ValueError: the baseline was not measured, or a trial took no time.
    """
    for trial in trials:
        if not trial.seconds > 0:
            raise ValueError(f"{trial} has no duration")
    cost = {(trial.setting, trial.round): trial.seconds for trial in trials}
    if not any(setting == baseline for setting, _ in cost):
        raise ValueError(f"the baseline {baseline} was not measured")
    best, speedup = baseline, 1.0
    reasons: list[str] = []
    for setting in sorted({t.setting for t in trials} - {baseline}):
        pairs = _pairs(cost, setting, baseline)
        found = _compare(pairs)
        wanted = 1 / (1 - price(setting.codec, baseline.codec))
        label = str(setting)
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


def hopeless(trials: Sequence[Trial], setting: Setting, baseline: Setting) -> bool:
    """Whether two trials or more have shown it, and each of them, to be far slower than the baseline."""
    pairs = _pairs({(t.setting, t.round): t.seconds for t in trials}, setting, baseline)
    return len(pairs) > 1 and all(own > _FAR_SLOWER * other for own, other in pairs)


@dataclass(frozen=True)
class _Comparison:
    speedup: float
    won: float


def _pairs(
    cost: Mapping[tuple[Setting, int], float], setting: Setting, baseline: Setting
) -> list[tuple[float, float]]:
    """What both cost, of each round in which both were tried."""
    rounds = sorted(turn for tried, turn in cost if tried == setting)
    return [(cost[setting, r], cost[baseline, r]) for r in rounds if (baseline, r) in cost]


def _compare(pairs: Sequence[tuple[float, float]]) -> _Comparison:
    if not pairs:
        return _Comparison(0.0, 0.0)
    ratios = [other / own for own, other in pairs]
    return _Comparison(statistics.median(ratios), sum(ratio > 1 for ratio in ratios) / len(ratios))
