"""Ask and tell: every algorithm, restored at any point, chooses what it would have chosen."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from shoal.objects.errors import Conflict, Invalid, NotFound
from shoal.objects.experiment import ExperimentSpec, Objective, Parameter
from shoal.objects.experiment_rules import parse_parameter
from shoal.search import Study
from shoal.search.optuna_sampler import MissingExtra
from shoal.search.samplers import Result, sampler_for
from shoal.search.space import seed_for
from shoal.search.stopping import Stopping
from shoal.search.study import Asked, Ended, Search, pareto

SPACE = {"x": "-5.0..5.0", "lr": "1e-4..1e-1:log", "k": "1..4", "opt": "sgd,adam"}


def spec(algorithm: str, parameters: dict[str, str] = SPACE, **more: Any) -> ExperimentSpec:
    from shoal.objects.experiment import Algorithm

    settings = more.pop("settings", {})
    return ExperimentSpec(
        objectives=more.pop("objectives", (Objective(metric="f", direction="minimize"),)),
        parameters=tuple(parse_parameter(f"{name}={text}") for name, text in parameters.items()),
        template={},
        algorithm=Algorithm(name=algorithm, seed=7, settings=settings),  # type: ignore[arg-type]
        **more,
    )


def f(point: dict[str, Any]) -> float:
    return (point["x"] - 1) ** 2 + point["k"] + (point["opt"] == "sgd")


ALGORITHMS = [
    ("random", {}),
    ("tpe", {"nStartupTrials": 4}),
    ("cmaes", {"populationSize": 4}),
    ("qmc", {}),
    ("nsga2", {"populationSize": 4}),
    ("pbt", {"populationSize": 4}),
]


@pytest.mark.parametrize(("name", "settings"), ALGORITHMS, ids=[name for name, _ in ALGORITHMS])
@pytest.mark.slow
def test_a_restored_search_chooses_what_the_first_one_does(name: str, settings: Any) -> None:
    """Four trials run at a time; their results come in another order than they were asked."""
    made = spec(name, settings=settings)
    search, asked, ended = Search(made), list[Asked](), list[Ended]()
    running: list[Asked] = []
    for number in range(24):
        if len(running) == 4:
            done = running.pop((number * 7) % 4 if name != "pbt" else 0)
            state = "failed" if number % 11 == 10 else "complete"
            result = Result(state, (f(done.chosen.parameters),))  # type: ignore[arg-type]
            search.tell(done.number, result)
            ended.append(Ended(done.number, result))
        if number in (6, 13, 21):
            search = Search.restore(made, asked, ended)
            again = Search.restore(made, asked, ended)
            assert again.ask() == search.ask()
            search = Search.restore(made, asked, ended)
        each = Asked(number, search.ask(), len(ended))
        asked.append(each)
        running.append(each)
    undisturbed, done = Search(made), 0
    for each in asked:
        for result in ended[done : each.after]:
            undisturbed.tell(*result)
        done = each.after
        assert undisturbed.ask() == each.chosen


@pytest.mark.slow
def test_gaussian_processes_find_the_least_of_a_bowl_and_can_be_restored() -> None:
    pytest.importorskip("torch")  # it takes seconds to load, which is why this test is slow
    made = spec("gp", {"x": "-5.0..5.0"}, settings={"nStartupTrials": 4})
    search, asked, ended = Search(made), list[Asked](), list[Ended]()
    for number in range(10):
        if number == 7:
            search = Search.restore(made, asked, ended)
            assert Search.restore(made, asked, ended).ask() == Search.restore(made, asked, ended).ask()
        asked.append(Asked(number, search.ask(), len(ended)))
        result = Result("complete", ((asked[-1].chosen.parameters["x"] - 1) ** 2,))
        search.tell(number, result)
        ended.append(Ended(number, result))
    least = min(each.result.values[0] for each in ended[4:])
    assert least < min(0.05, *(each.result.values[0] for each in ended[:4]))


def test_sequential_tpe_is_optuna_with_the_same_seeds() -> None:
    import optuna

    study = Study(SPACE, minimize="f", algorithm="tpe", settings={"nStartupTrials": 5}, seed=7)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    alone = optuna.create_study()
    for number in range(20):
        trial = study.ask()
        study.tell(trial.number, f(trial.parameters))
        with pytest.warns(optuna.exceptions.ExperimentalWarning):
            alone.sampler = optuna.samplers.TPESampler(
                seed=seed_for(7, number), multivariate=True, group=True, n_startup_trials=5
            )
        other = alone.ask()
        point = {
            "x": other.suggest_float("x", -5, 5),
            "lr": other.suggest_float("lr", 1e-4, 1e-1, log=True),
            "k": other.suggest_int("k", 1, 4),
            "opt": other.suggest_categorical("opt", ["sgd", "adam"]),
        }
        alone.tell(other, f(point))
        assert trial.parameters == point


def test_constraints_and_points_reach_the_sampler() -> None:
    made = spec("tpe", settings={"nStartupTrials": 2}, points=({"x": 1, "k": "2"},))
    search = Search(made)
    first = search.ask()
    assert (first.parameters["x"], first.parameters["k"], first.origin) == (1.0, 2, "point")
    search.tell(0, Result("complete", (1.0,), (0.5,)))
    for number in range(1, 6):
        search.ask()
        search.tell(number, Result("stopped", (1.0 * number,), (-1.0,), step=3))
    assert set(search.ask().parameters) == set(SPACE)


@pytest.mark.slow
def test_conditional_parameters_exist_only_where_they_do() -> None:
    from shoal.objects.experiment import Activation

    when = Activation(parameter="opt", values=("sgd",))
    momentum = Parameter(name="m", type="float", min=0.5, max=0.9, when=when)
    for algorithm in ("random", "tpe"):
        study = Study([parse_parameter("opt=sgd,adam"), momentum], minimize="f", algorithm=algorithm)
        for _ in range(20):
            trial = study.ask()
            assert ("m" in trial.parameters) == (trial.parameters["opt"] == "sgd")
            study.tell(trial.number, trial.parameters.get("m", 0.7))


def test_a_grid_has_each_point_once() -> None:
    study = Study({"k": "1..3", "opt": "a,b"}, maximize="f", algorithm="grid")
    points = []
    for _ in range(6):
        trial = study.ask()
        points.append(tuple(trial.parameters.values()))
        study.tell(trial.number, trial.parameters["k"])
    assert sorted(points) == [(k, o) for k in (1, 2, 3) for o in ("a", "b")]
    assert study.best[0][1] == (3.0,)
    with pytest.raises(Conflict, match="all 6 points"):
        study.ask()


def test_several_objectives_have_a_front() -> None:
    made = spec("nsga2", objectives=(
        Objective(metric="f", direction="minimize"), Objective(metric="g", direction="maximize"),
    ))  # fmt: skip
    assert pareto(made, [(1, 1), (2, 2), (2, 1), (0.5, 0), (1, 1)]) == [0, 1, 3]
    study = Study({"x": "0.0..1.0"}, minimize="cost", maximize="gain", algorithm="nsga2")
    for _ in range(10):
        trial = study.ask()
        study.tell(trial.number, (trial.parameters["x"], trial.parameters["x"]))
    assert len(study.best) == 10


def test_wrong_use_is_one_sentence() -> None:
    with pytest.raises(Invalid, match="1 is above max, 0"):
        Study({"x": "1..0"}, minimize="f")
    with pytest.raises(Invalid, match="is not NAME=RANGE"):
        parse_parameter("x")
    with pytest.raises(Invalid, match="'lgo' is neither log nor step"):
        parse_parameter("x=1..2:lgo")
    study = Study({"x": "0..1"}, minimize="f", algorithm="random")
    trial = study.ask()
    with pytest.raises(NotFound):
        study.tell(7, 1.0)
    with pytest.raises(Invalid, match="a value is a finite number"):
        study.tell(trial.number, float("nan"))


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "optuna":
            raise ImportError("No module named 'optuna'", name="optuna")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="tpe needs optuna") as raised:
        sampler_for(spec("tpe"))
    assert "pip install 'shoal[search]'" in raised.value.hint
    assert sampler_for(spec("random")).ask(0, {}).parameters


@pytest.mark.slow
def test_optuna_is_loaded_when_it_is_used() -> None:
    import subprocess

    code = (
        "import sys, shoal.control.controllers, shoal.search.study; assert 'optuna' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def stopping(name: str, **settings: Any) -> Stopping:
    from shoal.objects.experiment import EarlyStopping

    return Stopping(spec("random", early_stopping=EarlyStopping(name=name, settings=settings)))  # type: ignore[arg-type]


def test_the_median_is_a_median() -> None:
    """Katib's rule takes the mean of the means, 0.5, and would keep the trial at 0.45."""
    rule = stopping("median", minTrials=3, startStep=4)
    for trial, value in enumerate((0.2, 0.4, 0.9)):
        for step in range(1, 6):
            rule.take(trial, step, value)
        rule.completed(trial)
    for step in (1, 2, 3):
        assert not rule.take(3, step, 0.45).stop
    assert "worse than the median of 3 completed trials, 0.4" in rule.take(3, 4, 0.45).stop


def test_asha_keeps_the_best_share_at_each_rung() -> None:
    rule = stopping("asha", minResource=2, reductionFactor=2)
    assert rule.take(0, 1, 5.0).reached is None
    assert not rule.take(0, 2, 5.0).stop  # the first one
    assert rule.take(1, 2, 6.0).stop
    assert not rule.take(2, 2, 4.0).stop
    assert not rule.take(0, 3, 9.0).stop  # no rung
    verdict = rule.take(0, 4, 3.0)
    assert (verdict.reached, verdict.stop) == ((1, 3.0), "")
    assert rule.take(2, 9, 3.5).reached == (2, 3.5)  # a report may skip rungs


def test_hyperband_has_brackets_with_later_first_rungs() -> None:
    rule = stopping("hyperband", minResource=1, maxResource=27, reductionFactor=3)
    brackets = [rule.bracket(trial) for trial in range(200)]
    counts = [brackets.count(each) for each in range(4)]
    assert sum(counts) == 200
    assert counts[0] > counts[-1] > 0
    late = brackets.index(2)
    assert rule.take(late, 8, 1.0).reached is None
    assert rule.take(late, 9, 1.0).reached is not None


def test_percentile_and_threshold() -> None:
    rule = stopping("percentile", percentile=50, minTrials=2, startStep=1)
    for trial, value in enumerate((1.0, 3.0)):
        rule.take(trial, 1, value)
        rule.completed(trial)
    assert not rule.take(2, 1, 1.5).stop
    assert "best 50 percent" in rule.take(3, 1, 2.5).stop
    bounds = stopping("threshold", lower=0, upper=10)
    assert not bounds.take(0, 1, 5.0).stop
    assert "above 10" in bounds.take(0, 2, 11.0).stop
    assert "not a number" in bounds.take(0, 3, float("nan")).stop
