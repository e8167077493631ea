"""A search: asks a sampler for points and gives it results, in a recorded order.

`Search` is what the experiment controller keeps in memory. It can be made again from the recorded
trials at any time: the interleaving of asks and results follows from `Asked.after` (how many trials
had ended before the ask) and the order of the ended ones. `Study` is the same for a script:

    study = Study({"lr": "1e-4..1e-1:log", "opt": "sgd,adam"}, maximize="accuracy", seed=7)
    for _ in range(40):
        trial = study.ask()
        study.tell(trial.number, train(**trial.parameters))
    print(study.best)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from shoal.objects.admit import invalid, problems_of
from shoal.objects.errors import Conflict, Invalid, NotFound
from shoal.objects.experiment import (
    Algorithm,
    EarlyStopping,
    Experiment,
    ExperimentSpec,
    Objective,
    Parameter,
)
from shoal.objects.experiment_rules import check_search, parse_parameter, read_value
from shoal.objects.meta import Metadata
from shoal.search.samplers import Result, Sampler, Suggestion, Waits, sampler_for
from shoal.search.space import Point
from shoal.search.stopping import Stopping

__all__ = ["Asked", "Ended", "Search", "Study", "StudyTrial", "pareto"]


class Asked(NamedTuple):
    """A point that was chosen: its number, what was chosen, and how many trials had ended."""

    number: int
    chosen: Suggestion
    after: int


class Ended(NamedTuple):
    """A trial that ended, in the order of ends."""

    number: int
    result: Result


class Search:
    """See the module. Not thread-safe."""

    def __init__(self, spec: ExperimentSpec, learned: Iterable[tuple[Point, Result]] = ()) -> None:
        """`learned` are the trials of earlier experiments, for a warm start.

        Raises:
            MissingExtra: the algorithm needs a library that is not installed.
        """
        self._spec = spec
        self._sampler: Sampler = sampler_for(spec)
        self.asked = 0
        """Points chosen so far; the number of the next one."""
        self.ended = 0
        """Results taken so far."""
        for parameters, result in learned:
            self._sampler.learn(parameters, result)

    @classmethod
    def restore(
        cls,
        spec: ExperimentSpec,
        asked: Sequence[Asked],
        ended: Sequence[Ended],
        learned: Iterable[tuple[Point, Result]] = (),
    ) -> Search:
        """The search that was asked and given all this; `asked` by number, `ended` by order.

        Raises:
            MissingExtra: as the constructor.
        """
        search, done = cls(spec, learned), 0
        for each in asked:
            while done < min(each.after, len(ended)):
                search.tell(*ended[done])
                done += 1
            search._sampler.adopt(each.number, each.chosen)
            search.asked = each.number + 1
        for each in ended[done:]:
            search.tell(*each)
        return search

    @property
    def exhausted(self) -> bool:
        """Whether every point of the space has been chosen."""
        return self._sampler.total is not None and self.asked >= self._sampler.total

    def ask(self) -> Suggestion:
        """The next point.

        Raises:
            Waits: results of running trials are needed first.
        """
        number = self.asked
        if number >= len(self._spec.points):
            chosen = self._sampler.ask(number, {})
        else:
            known = {each.name: each for each in self._spec.parameters}
            given = self._spec.points[number].items()
            fixed = {name: read_value(known[name], value) for name, value in given}
            chosen = Suggestion(self._sampler.ask(number, fixed).parameters, origin="point")
        self.asked += 1
        return chosen

    def tell(self, number: int, result: Result) -> None:
        """Take the result of a trial."""
        self._sampler.tell(number, result)
        self.ended += 1


class StudyTrial(NamedTuple):
    """A point to evaluate."""

    number: int
    parameters: Point


@dataclass(frozen=True)
class _Finished:
    trial: StudyTrial
    result: Result


class Study:
    """Ask and tell in process; see the module. Not thread-safe."""

    def __init__(
        self,
        parameters: Mapping[str, str] | Sequence[Parameter],
        *,
        minimize: str | Sequence[str] = (),
        maximize: str | Sequence[str] = (),
        algorithm: str = "tpe",
        settings: Mapping[str, Any] | None = None,
        early_stopping: str = "none",
        stopping_settings: Mapping[str, Any] | None = None,
        points: Sequence[Mapping[str, Any]] = (),
        seed: int = 0,
    ) -> None:
        """`parameters` are ranges as `shoal search --param` takes them, or `Parameter`s.

        Raises:
            Invalid: the space, the objectives or a setting is wrong.
            MissingExtra: the algorithm needs a library that is not installed.
        """
        if isinstance(parameters, Mapping):
            parameters = [parse_parameter(f"{name}={text}") for name, text in parameters.items()]
        spec = ExperimentSpec(
            objectives=(*_objectives(minimize, "minimize"), *_objectives(maximize, "maximize")),
            parameters=tuple(parameters),
            template={},
            algorithm=Algorithm(name=cast("Any", algorithm), settings=dict(settings or {}), seed=seed),
            early_stopping=EarlyStopping(
                name=cast("Any", early_stopping), settings=dict(stopping_settings or {})
            ),
            points=tuple(dict(each) for each in points),
            max_trials=100_000 if algorithm != "grid" else None,
        )
        findings = check_search(Experiment(metadata=Metadata(name="study"), spec=spec))
        if problems := problems_of(findings):
            raise invalid("the study", problems)
        self._spec = spec
        self._search = Search(spec)
        self._stopping = Stopping(spec)
        self._running: dict[int, StudyTrial] = {}
        self._latest: dict[int, tuple[int, float]] = {}
        self._finished: list[_Finished] = []

    def ask(self) -> StudyTrial:
        """The next point.

        Raises:
            Conflict: every point of the grid was asked for, or results are needed first.
        """
        if self._search.exhausted:
            raise Conflict(f"all {self._search.asked} points of the grid have been asked for")
        number = self._search.asked
        try:
            chosen = self._search.ask()
        except Waits as error:
            raise Conflict(f"the next point needs more results: {error}") from error
        trial = self._running[number] = StudyTrial(number, chosen.parameters)
        return trial

    def report(self, number: int, step: int, value: float) -> bool:
        """Report the objective at a step of a running trial; True when the trial should be stopped.

        A stopped trial is ended with `stop`.

        Raises:
            NotFound: no such trial is running.
        """
        self._trial(number)
        self._latest[number] = (step, value)
        return bool(self._stopping.take(number, step, value).stop)

    def tell(self, number: int, values: float | Sequence[float] | None) -> None:
        """The result of a trial, one value for each objective; None: it failed.

        Raises:
            NotFound: no such trial is running.
            Invalid: there are not as many values as objectives, or one is not finite.
        """
        trial = self._trial(number)
        if values is None:
            self._end(trial, Result("failed"))
            return
        listed = (float(values),) if isinstance(values, int | float) else tuple(map(float, values))
        if len(listed) != len(self._spec.objectives):
            raise Invalid(f"wants {len(self._spec.objectives)} values; found {len(listed)}")
        if not all(map(math.isfinite, listed)):
            raise Invalid(f"trial {number}: a value is a finite number; pass None for a failed trial")
        self._stopping.completed(number)
        self._end(trial, Result("complete", listed))

    def stop(self, number: int) -> None:
        """End a trial early, with the value that it reported last.

        Raises:
            NotFound: no such trial is running.
        """
        trial = self._trial(number)
        step, value = self._latest.get(number, (0, math.nan))
        finite = math.isfinite(value)
        self._end(
            trial, Result("stopped" if finite else "failed", (value,) if finite else (), step=step)
        )

    @property
    def best(self) -> tuple[tuple[StudyTrial, tuple[float, ...]], ...]:
        """The completed trials that no other beats in every objective, with their values."""
        complete = [each for each in self._finished if each.result.state == "complete"]
        front = pareto(self._spec, [each.result.values for each in complete])
        return tuple((complete[at].trial, complete[at].result.values) for at in front)

    def _trial(self, number: int) -> StudyTrial:
        if number not in self._running:
            raise NotFound(f"no trial {number} is running in this study")
        return self._running[number]

    def _end(self, trial: StudyTrial, result: Result) -> None:
        del self._running[trial.number]
        self._search.tell(trial.number, result)
        self._finished.append(_Finished(trial, result))


def pareto(spec: ExperimentSpec, values: Sequence[tuple[float, ...]]) -> list[int]:
    """The positions of the values that no other value beats, in order; of equal ones the first.

    With one objective that is the best one.
    """
    signs = [1.0 if each.direction == "maximize" else -1.0 for each in spec.objectives]
    scores = [tuple(s * v for s, v in zip(signs, each, strict=True)) for each in values]
    front: list[int] = []
    best: list[tuple[float, ...]] = []
    # in falling order a score can only be beaten by one that was seen before
    for at in sorted(range(len(scores)), key=lambda at: (tuple(-s for s in scores[at]), at)):
        if not any(all(b >= s for b, s in zip(each, scores[at], strict=True)) for each in best):
            front.append(at)
            best.append(scores[at])
    return sorted(front)


def _objectives(
    names: str | Sequence[str], direction: Literal["minimize", "maximize"]
) -> list[Objective]:
    listed = (names,) if isinstance(names, str) else names
    return [Objective(metric=name, direction=direction) for name in listed]
