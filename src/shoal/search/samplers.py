"""What chooses points: the seam behind which the algorithms are, and those that need no library.

A sampler is a function of what it was given in order: `ask`, `adopt` (a point that was chosen before,
by this process or by its predecessor) and `tell`. Two samplers that were given the same sequence
answer alike, which is how a restarted controller continues a search. Samplers are not thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

from shoal.objects.experiment import ExperimentSpec
from shoal.objects.experiment_rules import grid_sizes, settings_of
from shoal.search.space import Point, grid_point, perturbed, sampled, seed_for

__all__ = ["Result", "Sampler", "Suggestion", "Waits", "sampler_for", "scored"]


@dataclass(frozen=True)
class Suggestion:
    """A point to try."""

    parameters: Point
    parent: int | None = None
    """Population based training: the number of the trial that this one continues from."""
    origin: Literal["algorithm", "point"] = "algorithm"


@dataclass(frozen=True)
class Result:
    """How a trial ended."""

    state: Literal["complete", "stopped", "failed"]
    values: tuple[float, ...] = ()
    """Of the objectives; of a stopped trial the values when it was stopped."""
    violations: tuple[float, ...] = ()
    """By how much each constraint is violated; at most 0: satisfied."""
    step: int = 0
    """The last reported step."""

    @property
    def feasible(self) -> bool:
        """Whether all constraints are satisfied."""
        return all(each <= 0 for each in self.violations)


class Waits(Exception):
    """The sampler needs the results of running trials before it can choose another point."""


class Sampler(Protocol):
    """See the module."""

    @property
    def total(self) -> int | None:
        """How many points there are; None: any number."""
        ...

    def ask(self, number: int, fixed: Mapping[str, object]) -> Suggestion:
        """Choose the point of a trial; `fixed` gives some of its values.

        Raises:
            Waits: results are missing.
        """
        ...

    def adopt(self, number: int, chosen: Suggestion) -> None:
        """Take a point that was chosen before."""
        ...

    def tell(self, number: int, result: Result) -> None:
        """Take the result of a trial that was asked for or adopted."""
        ...

    def learn(self, parameters: Point, result: Result) -> None:
        """Take a trial of another experiment, before the first `ask`."""
        ...


def sampler_for(spec: ExperimentSpec) -> Sampler:
    """The sampler of the experiment's algorithm.

    Raises:
        MissingExtra: the algorithm needs a library that is not installed.
    """
    name = spec.algorithm.name
    if name == "random":
        return _Random(spec)
    if name == "grid":
        return _Grid(spec)
    if name == "pbt":
        return _Population(spec)
    from shoal.search.optuna_sampler import OptunaSampler  # imports the library

    return OptunaSampler(spec)


def scored(spec: ExperimentSpec, result: Result) -> float:
    """The first objective, larger is better; minus infinity for what has no value or is infeasible."""
    if result.state == "failed" or not result.values or not result.feasible:
        return -math.inf
    return result.values[0] if spec.objectives[0].direction == "maximize" else -result.values[0]


class _Random:
    """Independent uniform points."""

    def __init__(self, spec: ExperimentSpec) -> None:
        self._spec = spec
        self.total: int | None = None

    def ask(self, number: int, fixed: Mapping[str, object]) -> Suggestion:
        random = Random(seed_for(self._spec.algorithm.seed, number))
        return Suggestion(sampled(self._spec.parameters, random, fixed))

    def adopt(self, number: int, chosen: Suggestion) -> None:
        """Nothing depends on it."""

    def tell(self, number: int, result: Result) -> None:
        """Nothing depends on it."""

    def learn(self, parameters: Point, result: Result) -> None:
        """Nothing depends on it."""


class _Grid(_Random):
    """Every point of the grid once, in order."""

    def __init__(self, spec: ExperimentSpec) -> None:
        super().__init__(spec)
        self._sizes: Sequence[int] = grid_sizes(spec)
        self.total = math.prod(self._sizes)

    def ask(self, number: int, fixed: Mapping[str, object]) -> Suggestion:
        return Suggestion(grid_point(self._spec.parameters, self._sizes, number))


class _Population:
    """Population based training (Jaderberg et al., 2017), asynchronous.

    Trial n is generation n // P of member n % P. A member continues from its own last trial with the
    same values, unless that is among the worst share of the members' last results: then it continues
    from one of the best share, with perturbed values. A member has one trial at a time.
    """

    def __init__(self, spec: ExperimentSpec) -> None:
        settings = settings_of(spec.algorithm)
        self._spec = spec
        self._size: int = settings["populationSize"]
        self._share: float = settings["truncation"]
        self._resample: float = settings["resampleProbability"]
        self._factor: float = settings["perturbation"]
        self._points: dict[int, Point] = {}
        self._results: dict[int, Result] = {}
        self.total: int | None = None

    def ask(self, number: int, fixed: Mapping[str, object]) -> Suggestion:
        random = Random(seed_for(self._spec.algorithm.seed, number))
        before = number - self._size
        if before < 0:
            return self._chosen(number, Suggestion(sampled(self._spec.parameters, random, fixed)))
        if before not in self._results:
            raise Waits(f"trial {before} of the same member has not ended")
        newest = [max(n for n in self._results if n % self._size == m) for m in self._members()]
        ranked = sorted(newest, key=lambda n: (-scored(self._spec, self._results[n]), n))
        few = max(1, math.ceil(len(ranked) * self._share))
        if before not in ranked[-few:] or len(ranked) < 2:
            return self._chosen(number, Suggestion(dict(self._points[before]), parent=before))
        parent = ranked[random.randrange(few)]
        point = perturbed(
            self._spec.parameters,
            self._points[parent],
            random,
            factor=self._factor,
            resample=self._resample,
        )
        return self._chosen(number, Suggestion(point, parent=parent))

    def adopt(self, number: int, chosen: Suggestion) -> None:
        self._points[number] = chosen.parameters

    def tell(self, number: int, result: Result) -> None:
        self._results[number] = result

    def learn(self, parameters: Point, result: Result) -> None:
        """A population starts from its own members."""

    def _members(self) -> list[int]:
        return sorted({number % self._size for number in self._results})

    def _chosen(self, number: int, suggestion: Suggestion) -> Suggestion:
        self._points[number] = suggestion.parameters
        return suggestion
