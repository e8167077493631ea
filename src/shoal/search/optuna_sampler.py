"""The seam to Optuna: TPE, GP, CMA-ES, QMC and NSGA-II behind `Sampler`. The one module that imports it.

A study in memory holds the trials in the order in which they were asked for. Every point is chosen by
a new sampler with the seed `seed_for(seed, number)`, so the point is a function of the study alone.
TPE and GP read only points and results: `adopt` enters a point as it is. The others keep state of
their own in the study, which follows from the sequence of asks and results: `adopt` asks them again.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.objects.errors import ShoalError
from shoal.objects.experiment import ExperimentSpec, Parameter
from shoal.objects.experiment_rules import settings_of
from shoal.search.samplers import Result, Suggestion
from shoal.search.space import Point, exists, seed_for

if TYPE_CHECKING:
    import optuna

__all__ = ["MissingExtra", "OptunaSampler"]

_REPLAYED = frozenset({"cmaes", "qmc", "nsga2"})
_INITIAL = -1
"""The number that the seed of a sequence as a whole is made of (QMC)."""


class MissingExtra(ShoalError):
    """An algorithm needs a library that is not installed."""

    code = "MissingExtra"
    exit_code = 2


class OptunaSampler:
    """See the module."""

    def __init__(self, spec: ExperimentSpec) -> None:
        """Create the study.

        Raises:
            MissingExtra: Optuna is not installed.
        """
        self._optuna: Any = _library(spec.algorithm.name)
        self._spec = spec
        self._settings = settings_of(spec.algorithm)
        self.total: int | None = None
        # without conditional parameters there is one group: the points are the same, and come sooner
        self._conditional = any(each.when is not None for each in spec.parameters)
        directions = [each.direction for each in spec.objectives]
        self._study: optuna.Study = self._optuna.create_study(
            directions=directions, sampler=self._optuna.samplers.RandomSampler(seed=0)
        )
        self._trials: dict[int, Any] = {}

    def ask(self, number: int, fixed: Mapping[str, object]) -> Suggestion:
        """See `Sampler.ask`."""
        if fixed:
            self._study.enqueue_trial(dict(fixed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of experimental features and of independent sampling
            self._study.sampler = self._sampler(number)
            trial = self._study.ask()
            self._trials[number] = trial
            point: Point = {}
            for each in self._spec.parameters:
                if exists(each, point):
                    point[each.name] = _suggest(trial, each)
        return Suggestion(point)

    def adopt(self, number: int, chosen: Suggestion) -> None:
        """See `Sampler.adopt`."""
        if self._spec.algorithm.name in _REPLAYED and chosen.origin == "algorithm":
            if self.ask(number, {}).parameters == chosen.parameters:
                return
            # chosen by another version of the library: its place in the sequence is taken as it is
            self._study.tell(self._trials[number], state=self._optuna.trial.TrialState.FAIL)
        self.ask(number, chosen.parameters)

    def tell(self, number: int, result: Result) -> None:
        """See `Sampler.tell`."""
        self._tell(self._trials.pop(number), result)

    def learn(self, parameters: Point, result: Result) -> None:
        """See `Sampler.learn`; values outside the space are left out."""
        self.ask(_INITIAL, parameters)
        self.tell(_INITIAL, result)

    def _tell(self, trial: Any, result: Result) -> None:
        states = self._optuna.trial.TrialState
        if result.state == "failed" or not result.values:
            self._study.tell(trial, state=states.FAIL)
            return
        for at, violation in enumerate(result.violations):
            trial.set_constraint(str(at), violation)
        if result.state == "stopped":
            trial.report(result.values[0], result.step)
            self._study.tell(trial, state=states.PRUNED)
        else:
            self._study.tell(trial, list(result.values))

    def _sampler(self, number: int) -> Any:
        samplers, given = self._optuna.samplers, self._settings
        name, seed = self._spec.algorithm.name, seed_for(self._spec.algorithm.seed, number)
        if name == "tpe":
            return samplers.TPESampler(
                seed=seed,
                multivariate=given["multivariate"],
                group=given["multivariate"] and given["group"] and self._conditional,
                constant_liar=given["constantLiar"],
                **_given(
                    n_startup_trials=given["nStartupTrials"], n_ei_candidates=given["nEiCandidates"]
                ),
            )
        if name == "gp":
            return samplers.GPSampler(seed=seed, **_given(n_startup_trials=given["nStartupTrials"]))
        if name == "cmaes":
            return samplers.CmaEsSampler(
                seed=seed,
                **_given(
                    n_startup_trials=given["nStartupTrials"],
                    sigma0=given["sigma"],
                    popsize=given["populationSize"],
                ),
            )
        if name == "qmc":
            return samplers.QMCSampler(
                seed=seed_for(self._spec.algorithm.seed, _INITIAL),
                independent_sampler=samplers.RandomSampler(seed=seed),
                qmc_type=given["type"],
                scramble=given["scramble"],
            )
        return samplers.NSGAIISampler(
            seed=seed,
            **_given(
                population_size=given["populationSize"],
                mutation_prob=given["mutationProbability"],
                crossover_prob=given["crossoverProbability"],
                swapping_prob=given["swappingProbability"],
            ),
        )


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _suggest(trial: Any, parameter: Parameter) -> Any:
    if parameter.type == "categorical":
        return trial.suggest_categorical(parameter.name, list(parameter.choices))
    low: Any = parameter.min
    high: Any = parameter.max
    if parameter.type == "int":
        step = int(parameter.step or 1)
        return trial.suggest_int(parameter.name, int(low), int(high), step=step, log=parameter.log)
    return trial.suggest_float(parameter.name, low, high, step=parameter.step, log=parameter.log)


def _library(algorithm: str) -> Any:
    needed = {"cmaes": "cmaes", "qmc": "scipy", "gp": "torch"}.get(algorithm)
    try:
        import optuna

        if needed is not None:
            __import__(needed)
    except ImportError as error:
        extra = "search,train" if algorithm == "gp" else "search"
        raise MissingExtra(
            f"the algorithm {algorithm} needs {error.name}, which this Python does not have",
            hint=f"pip install 'shoal[{extra}]', or choose random or grid",
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
