"""Early stopping: which running trials to end, from the values that they report at each step.

`Stopping` takes the points of the first objective in order, trial by trial. A decision is a function
of what it was given before: the values recorded at rungs (successive halving), and the series of
completed trials (median, percentile). Values are compared as larger-is-better.

- **asha**: asynchronous successive halving (Li et al., 2020). A rung is a step; a trial that reaches
  it continues if it is among the best 1/eta of the trials that have reached it so far.
- **hyperband**: the same in several brackets, which differ in their first rung; a trial's bracket is a
  function of its number and the seed (Li et al., 2018).
- **median, percentile**: a trial ends if its best value is worse than that percentile of the means
  of completed trials up to the same step (Golovin et al., Vizier, 2017).
- **threshold**: a trial ends if a value leaves the bounds.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from shoal.objects.experiment import ExperimentSpec
from shoal.objects.experiment_rules import settings_of
from shoal.search.space import seed_for

__all__ = ["Reached", "Stopping", "Verdict"]

_FURTHEST_RUNGS = 40
_STEPS_KEPT = 256


class Reached(NamedTuple):
    """A trial's value at a rung, to be recorded before the decision that follows from it."""

    rung: int
    value: float


@dataclass(frozen=True)
class Verdict:
    """What follows from one point. `stop` is a sentence; empty: the trial continues."""

    reached: Reached | None = None
    stop: str = ""


@dataclass
class _Series:
    """Steps, and the mean of all values up to each."""

    steps: list[int] = field(default_factory=list[int])
    means: list[float] = field(default_factory=list[float])
    best: float = -math.inf

    def add(self, step: int, value: float) -> None:
        count = len(self.means)
        mean = value if not count else self.means[-1] + (value - self.means[-1]) / (count + 1)
        self.steps.append(max(step, self.steps[-1]) if self.steps else step)
        self.means.append(mean)
        self.best = max(self.best, value)

    def mean_up_to(self, step: int) -> float | None:
        at = bisect_right(self.steps, step)
        return self.means[at - 1] if at else None


class Stopping:
    """See the module. Not thread-safe."""

    def __init__(self, spec: ExperimentSpec) -> None:
        self._rule = spec.early_stopping.name
        self._settings = settings_of(spec.early_stopping)
        self._sign = 1.0 if spec.objectives[0].direction == "maximize" else -1.0
        self._seed = spec.algorithm.seed
        self._rungs: dict[tuple[int, int], list[float]] = {}
        """(bracket, rung) to the values of the trials that reached it, ascending."""
        self._reached: dict[int, int] = {}
        """Trial to the number of rungs that it has reached."""
        self._series: dict[int, _Series] = {}
        self._completed: list[int] = []
        self._means: dict[int, tuple[int, list[float]]] = {}
        """Step to how many of the completed trials `_means_at` has taken, and their means."""

    @property
    def active(self) -> bool:
        """Whether trials may be stopped at all."""
        return self._rule != "none"

    @property
    def needs_series(self) -> bool:
        """Whether trials are compared with the points of completed ones: a new process reads them."""
        return self._rule in ("median", "percentile")

    def rank(self, trial: int) -> int | None:
        """The rungs that the trial has passed, with those below its bracket; None: there are none."""
        if self._rule not in ("asha", "hyperband"):
            return None
        return self._reached.get(trial, 0) + self.bracket(trial)

    def recorded(self, trial: int, reached: Reached) -> None:
        """Take a rung value that was recorded before."""
        self._record(trial, reached)

    def completed(self, trial: int) -> None:
        """The trial ended by itself: others are compared with it from now on."""
        self._completed.append(trial)

    def take(self, trial: int, step: int, value: float) -> Verdict:
        """Take a point of a running trial; not a number is worse than everything."""
        if not self.active:
            return Verdict()
        score = self._sign * value if math.isfinite(value) else -math.inf
        if self._rule == "threshold":
            return self._bounds(step, value)
        if self.needs_series:
            self._series.setdefault(trial, _Series()).add(step, max(score, -1e300))
            return self._compare(trial, step)
        return self._halve(trial, step, score)

    def _bounds(self, step: int, value: float) -> Verdict:
        lower, upper = self._settings["lower"], self._settings["upper"]
        if step < self._settings["startStep"]:
            return Verdict()
        if math.isnan(value):
            return Verdict(stop=f"at step {step} the objective is not a number")
        if lower is not None and value < lower:
            return Verdict(stop=f"at step {step} the objective {value:.6g} is below {lower:g}")
        if upper is not None and value > upper:
            return Verdict(stop=f"at step {step} the objective {value:.6g} is above {upper:g}")
        return Verdict()

    def _compare(self, trial: int, step: int) -> Verdict:
        if step < self._settings["startStep"]:
            return Verdict()
        means = self._means_at(step)
        if len(means) < self._settings["minTrials"]:
            return Verdict()
        share = self._settings.get("percentile", 50.0)
        bound = _percentile(means, 100.0 - share if self._rule == "percentile" else 50.0)
        if self._series[trial].best >= bound:
            return Verdict()
        best, limit = self._sign * self._series[trial].best, self._sign * bound
        what = "median" if self._rule == "median" else f"best {share:g} percent"
        return Verdict(
            stop=f"at step {step} its best value {best:.6g} is worse than the {what} of "
            f"{len(means)} completed trials, {limit:.6g}"
        )

    def _means_at(self, step: int) -> list[float]:
        """The means of the completed trials up to the step, ascending. Kept for the newest steps, so
        that a point costs as much as trials have completed since the last point of its step."""
        taken, means = self._means.pop(step, (0, []))
        for trial in self._completed[taken:]:
            series = self._series.get(trial)
            mean = None if series is None else series.mean_up_to(step)
            if mean is not None:
                insort(means, mean)
        self._means[step] = (len(self._completed), means)
        if len(self._means) > _STEPS_KEPT:
            del self._means[next(iter(self._means))]
        return means

    def _halve(self, trial: int, step: int, score: float) -> Verdict:
        bracket, rung = self.bracket(trial), self._reached.get(trial, 0)
        at = self._rung_step(bracket, rung)
        if at is None or step < at:
            return Verdict()
        value = max(score, -1e300)
        while (above := self._rung_step(bracket, rung + 1)) is not None and above <= step:
            rung += 1  # a report may skip rungs
        reached = Reached(rung, self._sign * value)
        self._record(trial, reached)
        values = self._rungs[bracket, rung]
        keep = max(1, len(values) // self._settings["reductionFactor"])
        ahead = len(values) - bisect_right(values, value)
        if ahead < keep:
            return Verdict(reached)
        text = (
            f"at step {step} its value {self._sign * value:.6g} is not among the best {keep} "
            f"of {len(values)} trials"
        )
        return Verdict(reached, text)

    def _record(self, trial: int, reached: Reached) -> None:
        bracket = self.bracket(trial)
        insort(self._rungs.setdefault((bracket, reached.rung), []), self._sign * reached.value)
        self._reached[trial] = max(self._reached.get(trial, 0), reached.rung + 1)

    def bracket(self, trial: int) -> int:
        """The bracket of a trial (hyperband); 0 for the other rules."""
        if self._rule != "hyperband":
            return 0
        weights = self._bracket_weights()
        return Random(seed_for(self._seed, trial)).choices(list(weights), list(weights.values()))[0]

    def _bracket_weights(self) -> Mapping[int, float]:
        """Bracket to the share of trials that start in it: each bracket has the same budget."""
        eta = self._settings["reductionFactor"]
        least, most = self._settings["minResource"], self._settings["maxResource"]
        count = int(math.log(most / least, eta) + 1e-9) + 1
        return {
            number: math.ceil(count * eta ** (count - 1 - number) / (count - number))
            for number in range(count)
        }

    def _rung_step(self, bracket: int, rung: int) -> int | None:
        """The step of a rung; None above the largest resource, where trials end by themselves."""
        eta, least = self._settings["reductionFactor"], self._settings["minResource"]
        most = self._settings.get("maxResource")
        if rung + bracket >= _FURTHEST_RUNGS:
            return None
        step = least * eta ** (rung + bracket)
        return None if most is not None and step >= most else step


def _percentile(ordered: list[float], percent: float) -> float:
    """With linear interpolation between neighbours."""
    place = (len(ordered) - 1) * percent / 100.0
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
