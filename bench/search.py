"""Hyperparameter search: quality beside Optuna alone, early stopping on digits, and the cost of trials.

Training curves of the digits are measured once and replayed in virtual time, so that a comparison of
two searches at equal compute depends on no other process. Needs scikit-learn.
"""

from __future__ import annotations

import heapq
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from bench.row import Row, p50, p95, shown
from shoal.client import Client
from shoal.objects.admit import admit
from shoal.objects.experiment import FINISHED, Experiment
from shoal.objects.kinds import EXPERIMENT, TRIAL
from shoal.search.space import seed_for
from shoal.search.study import Study
from shoal.testing.local import LocalHome, nodes

__all__ = ["rows"]

Point = Mapping[str, Any]
_SEEDS = range(10)
_TRIALS = 60
_EPOCHS = 27
_CONFIGURATIONS = 200
_TRAIN = """
import time
from shoal import report
begun = time.time()
for step in range(10_000):
    report(loss=0.0, step=step)
    time.sleep(max(0.0, begun + (step + 1) / 1000 - time.time()))
report(loss=99.0, step=10_000)
time.sleep(60)
"""


def rows() -> list[Row]:
    """Everything; about ten minutes on two cores."""
    return list(shown(_rows()))


def _rows() -> Iterator[Row]:
    yield from _quality()
    yield _halving()
    yield _suggestion()
    yield _many_trials()
    yield from _reports()


def _quality() -> Iterator[Row]:
    differing = 0
    for name, (space, value) in {**_functions(), "digits, SVC error": _digits()}.items():
        known: dict[str, float] = {}

        def evaluate(point: Point, value: Any = value, known: dict[str, float] = known) -> float:
            key = repr(sorted(point.items()))
            if key not in known:
                known[key] = value(point)
            return known[key]

        seeds = range(10 if name.startswith("digits") else 30)
        one = [_search(space, evaluate, seed, 1) for seed in seeds]
        four = [min(_search(space, evaluate, seed, 4)) for seed in seeds]
        differing += sum(_optuna_alone(space, evaluate, seed) != one[seed] for seed in _SEEDS)
        peer = [min(_optuna_parallel(space, evaluate, seed)) for seed in seeds]
        yield Row(
            f"TPE on {name}, 4 at a time, median best of {_TRIALS}",
            p50(peer),
            p50(four),
            "",
            f"{min(four):.3g} to {max(four):.3g}, {len(seeds)} seeds",
            f"one at a time: {p50([min(each) for each in one]):.3g}",
            why="the goal is the median of Optuna's defaults, 4 at a time",
        )
    yield Row("sequential searches that differ from Optuna alone, of 60", 0, differing, "")


def _functions() -> dict[str, tuple[dict[str, str], Callable[[Point], float]]]:
    plane = {"x": "-5.0..5.0", "y": "-5.0..5.0"}

    def ackley(p: Point) -> float:
        mean = (p["x"] ** 2 + p["y"] ** 2) / 2
        waves = (math.cos(2 * math.pi * p["x"]) + math.cos(2 * math.pi * p["y"])) / 2
        return -20 * math.exp(-0.2 * math.sqrt(mean)) - math.exp(waves) + 20 + math.e

    def branin(p: Point) -> float:
        x, y = p["x"], p["y"]
        first = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
        return first**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10

    def rastrigin(p: Point) -> float:
        return sum(10 + v**2 - 10 * math.cos(2 * math.pi * v) for v in (p["x"], p["y"]))

    return {
        "sphere": (plane, lambda p: (p["x"] - 1) ** 2 + (p["y"] + 2) ** 2),
        "Rosenbrock": (plane, lambda p: (1 - p["x"]) ** 2 + 100 * (p["y"] - p["x"] ** 2) ** 2),
        "Rastrigin": (plane, rastrigin),
        "Ackley": (plane, ackley),
        "Branin": ({"x": "-5.0..10.0", "y": "0.0..15.0"}, branin),
    }


def _digits() -> tuple[dict[str, str], Callable[[Point], float]]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.svm import SVC

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, train_size=400, test_size=400, random_state=0
    )

    def error(point: Point) -> float:
        model = SVC(C=point["x"], gamma=point["y"]).fit(train_x, train_y)
        return 1.0 - float(model.score(test_x, test_y))

    return {"x": "1e-2..1e3:log", "y": "1e-6..1e-1:log"}, error


def _optuna_alone(space: Mapping[str, str], value: Callable[[Point], float], seed: int) -> list[float]:
    """The values of a sequential search of Optuna's own, with a new sampler seed for each trial."""
    study, found = _study(), list[float]()
    for number in range(_TRIALS):
        study.sampler = _optuna().samplers.TPESampler(
            seed=seed_for(seed, number), multivariate=True, group=True, constant_liar=True
        )
        trial, point = _asked(study, space)
        found.append(value(point))
        study.tell(trial, found[-1])
    return found


def _optuna_parallel(
    space: Mapping[str, str], value: Callable[[Point], float], seed: int
) -> list[float]:
    """The values of a search of Optuna's own with its defaults, 4 at a time: see `_search`."""
    study, chance, found = _study(), Random(seed), list[float]()
    study.sampler = _optuna().samplers.TPESampler(seed=seed)
    running = [_asked(study, space) for _ in range(4)]
    while running:
        trial, point = running.pop(chance.randrange(len(running)))
        found.append(value(point))
        study.tell(trial, found[-1])
        if len(found) + len(running) < _TRIALS:
            running.append(_asked(study, space))
    return found


def _optuna() -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna


def _study() -> Any:
    return _optuna().create_study()


def _asked(study: Any, space: Mapping[str, str]) -> tuple[Any, dict[str, float]]:
    trial, point = study.ask(), dict[str, float]()
    for name, text in space.items():
        bounds, _, scale = text.partition(":")
        low, high = map(float, bounds.split(".."))
        point[name] = trial.suggest_float(name, low, high, log=scale == "log")
    return trial, point


def _search(
    space: Mapping[str, str], value: Callable[[Point], float], seed: int, parallel: int
) -> list[float]:
    """The values of Shoal's search, in the order of results: trials end in a random order."""
    study, chance = Study(space, minimize="value", seed=seed), Random(seed)
    running = [study.ask() for _ in range(parallel)]
    found: list[float] = []
    while running:
        trial = running.pop(chance.randrange(len(running)))
        found.append(value(trial.parameters))
        study.tell(trial.number, found[-1])
        if len(found) + len(running) < _TRIALS:
            running.append(study.ask())
    return found


def _halving() -> Row:
    """How soon ASHA has a trial as good as random search's best of 40, in the time of random search."""
    curves = _curves()
    shares: list[float] = []
    for seed in _SEEDS:
        end, best = _replayed(curves, seed, "none", trials=40)
        there, _ = _replayed(curves, seed, "asha", target=best)
        shares.append(there / end)
    return Row(
        "ASHA until random's best of 40, digits, 4 at a time",
        0.6,
        p50(shares),
        "of the time",
        f"{min(shares):.2f} to {max(shares):.2f}, 10 seeds",
    )


def _curves() -> list[tuple[float, list[float]]]:
    """Seconds per epoch and the accuracy after each, of points drawn at random."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images / 16, labels, test_size=0.3, random_state=0
    )
    space = {"lr": "1e-5..1e-1:log", "width": "4..128:log", "alpha": "1e-6..1e-1:log"}
    study = Study(space, maximize="accuracy", algorithm="random", seed=1)
    found: list[tuple[float, list[float]]] = []
    for _ in range(_CONFIGURATIONS):
        point = study.ask().parameters
        model = MLPClassifier(
            (point["width"],), learning_rate_init=point["lr"], alpha=point["alpha"], batch_size=64,
            random_state=0,
        )  # fmt: skip
        begun, scores = time.process_time(), list[float]()
        for _ in range(_EPOCHS):
            model.partial_fit(train_x, train_y, classes=np.unique(labels))
            scores.append(float(model.score(test_x, test_y)))
        found.append(((time.process_time() - begun) / _EPOCHS, scores))
    return found


def _replayed(
    curves: list[tuple[float, list[float]]],
    seed: int,
    stopping: str,
    *,
    trials: int = 1000,
    target: float = math.inf,
) -> tuple[float, float]:
    """When the search ends or has a complete trial of the target value, and its best value."""
    settings = {"maxResource": _EPOCHS} if stopping == "asha" else {}
    study = Study(
        {"at": f"0..{len(curves) - 1}"}, maximize="accuracy", algorithm="random", seed=seed,
        early_stopping=stopping, stopping_settings=settings,
    )  # fmt: skip
    queue: list[tuple[float, int, int, int]] = []
    started, now, best = 0, 0.0, 0.0

    def start() -> None:
        nonlocal started
        if started < trials:
            trial = study.ask()
            started += 1
            at = int(trial.parameters["at"])
            heapq.heappush(queue, (now + curves[at][0], trial.number, at, 1))

    for _ in range(4):
        start()
    while queue and best < target:
        now, number, at, epoch = heapq.heappop(queue)
        seconds, scores = curves[at]
        if study.report(number, epoch, scores[epoch - 1]):
            study.stop(number)
        elif epoch < _EPOCHS:
            heapq.heappush(queue, (now + seconds, number, at, epoch + 1))
            continue
        else:
            study.tell(number, max(scores))
            best = max(best, max(scores))
        start()
    return now, best


def _suggestion() -> Row:
    """From the question for a point to its stored Job, with 1,000 trials that have ended."""
    from tests.search.world import SearchPlane, add_ended

    plane = SearchPlane(cpus=50, seconds=5)
    experiment = plane.apply(maxTrials=1400, parallel=50, algorithm={"name": "tpe"})
    chance = Random(0)
    for number in range(1000):
        point = {"x": chance.uniform(-5, 5), "y": chance.uniform(-5, 5)}
        add_ended(plane, experiment, number, point, (point["x"] - 1) ** 2 + (point["y"] + 2) ** 2)
    plane.advance(7)  # restored, and the first fifty have ended
    (controller,) = (
        each.controller for each in plane.runner._workers if each.controller.name == "experiment"
    )
    inner, spent = controller._start_trials, list[float]()

    def timed(experiment: Any, memory: Any, now: float) -> Any:
        before, begun = len(memory.trials), time.process_time()
        ending = inner(experiment, memory, now)
        if made := len(memory.trials) - before:
            spent.append((time.process_time() - begun) * 1000 / made)
        return ending

    controller._start_trials = timed
    plane.advance(12)
    text = f"p95 {p95(spent):.0f}"
    return Row(
        "TPE suggestion to stored Job at 1,000 ended, 50 running, CPU", 150, p50(spent), "ms", text
    )


def _many_trials() -> Row:
    from tests.search.world import SearchPlane

    plane = SearchPlane(cpus=50)
    plane.apply(maxTrials=2000, parallel=50, earlyStopping={"name": "asha"})
    begun = time.process_time()
    ended = plane.finish(most_seconds=20_000)
    seconds = time.process_time() - begun
    text = f"{ended.status.trials.early_stopped} stopped early"
    return Row("2,000 trials, 50 at a time, simulated cluster, CPU", 60, seconds, "s", text)


def _reports() -> Iterator[Row]:
    """A trial that reports 1,000 points a second for ten seconds, and then one beyond the bound."""
    with TemporaryDirectory(prefix="shoal-bench-") as folder:
        script = Path(folder, "train.py")
        script.write_text(_TRAIN)
        with LocalHome(Path(folder, "home"), nodes(one={"cpu": 2000}), server=True) as local:
            role = {"command": [sys.executable, str(script), "${x}"]}
            spec: dict[str, Any] = {
                "objectives": [{"metric": "loss", "direction": "minimize"}],
                "parameters": [{"name": "x", "type": "float", "min": 0, "max": 1}],
                "algorithm": {"name": "random"},
                "earlyStopping": {"name": "threshold", "settings": {"upper": 50}},
                "maxTrials": 1,
                "template": {"spec": {"roles": [role]}},
            }
            with Client.connect(local.home.path) as client:
                document = {"metadata": {"name": "reports"}, "spec": spec}
                client.create(admit(document, EXPERIMENT))
                client.wait(Experiment, "default", "reports", _finished, timeout_seconds=120)
                (trial,) = (each.object for each in client.list(TRIAL, namespace="default").records)
                points = list(client.metrics("default", trial.status.job))
                bad = next(each for each in points if each.value == 99.0)
    seconds = bad.at - points[0].at
    yield Row("reports of one trial that are kept", 950, len(points) / seconds, "a second", higher=True)
    yield Row("from the report to the decision to stop", 1, trial.status.finished - bad.at, "s")


def _finished(experiment: Experiment | None) -> bool:
    return experiment is not None and experiment.status.phase in FINISHED
