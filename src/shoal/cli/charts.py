"""Values drawn with characters, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.objects.experiment import Experiment, Parameter
    from shoal.objects.trial import Trial

_BARS = "▁▂▃▄▅▆▇█"
_SPARKLINE_WIDTH = 24
_STRIP_WIDTH = 48
_PLOT_WIDTH, _PLOT_HEIGHT = 60, 14


def number(value: float | None) -> str:
    """At most six digits; `nan` for a value that is no finite number."""
    return "nan" if value is None else f"{value:.6g}"


def sparkline(values: Sequence[float | None], width: int = _SPARKLINE_WIDTH) -> str:
    """A line of bars, at most `width`; each is the mean of a part of the values, a space where it has
    none that is finite."""
    count = min(width, len(values))
    parts = [values[at * len(values) // count : (at + 1) * len(values) // count] for at in range(count)]
    means = [_mean([value for value in part if value is not None]) for part in parts]
    known = [mean for mean in means if mean is not None]
    if not known:
        return " " * count
    least, span = min(known), max(known) - min(known)
    return "".join(
        " " if mean is None else _BARS[round((mean - least) / span * (len(_BARS) - 1)) if span else 3]
        for mean in means
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass(frozen=True)
class SearchData:
    """The trials of an experiment that have values, by number. Values of the first objective are in
    `values[i][0]`; `best` are the numbers of the best trials."""

    title: str
    metrics: tuple[str, ...]
    minimize: tuple[bool, ...]
    numbers: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]
    parameters: tuple[Axis, ...]
    best: frozenset[int]

    @property
    def first(self) -> list[float]:
        """Values of the first objective."""
        return [each[0] for each in self.values]

    @property
    def running_best(self) -> list[float]:
        """The best value of the first objective up to each trial."""
        choose = min if self.minimize[0] else max
        return [choose(self.first[: at + 1]) for at in range(len(self.numbers))]


@dataclass(frozen=True)
class Axis:
    """One parameter: its place in each trial between 0 and 1 (None: it does not exist there), and what
    stands at both ends."""

    name: str
    places: tuple[float | None, ...]
    low: str
    high: str
    levels: int = 0
    """Of a categorical parameter: how many values it has."""


def search_data(experiment: Experiment, trials: Sequence[Trial]) -> SearchData:
    """What is drawn of an experiment; `trials` are those with values."""
    spec = experiment.spec
    usable = [each for each in trials if all(math.isfinite(value) for value in each.status.values)]
    return SearchData(
        title=experiment.metadata.name,
        metrics=tuple(each.metric for each in spec.objectives),
        minimize=tuple(each.direction == "minimize" for each in spec.objectives),
        numbers=tuple(each.spec.number for each in usable),
        values=tuple(each.status.values for each in usable),
        parameters=tuple(_axis(each, usable) for each in spec.parameters),
        best=frozenset(each.number for each in experiment.status.best),
    )


def importance(data: SearchData) -> list[tuple[str, float]]:
    """The part of the variance of the first objective that each parameter explains alone, the largest
    first: epsilon squared of the values in up to four groups of the parameter (its choices, or equal
    parts of its trials)."""
    found = [(axis.name, _explained(axis, data.first)) for axis in data.parameters]
    return sorted(found, key=lambda each: -each[1])


def draw_history(data: SearchData) -> list[str]:
    """Values of the first objective over trials (·), and the best so far (━)."""
    points = [
        (float(number), value, "·") for number, value in zip(data.numbers, data.first, strict=True)
    ]
    best = zip(data.numbers, data.running_best, strict=True)
    points += [(float(number), value, "━") for number, value in best]
    return _scatter(points, f"{data.metrics[0]} of {data.title}", "trial")


def draw_parallel(data: SearchData) -> list[str]:
    """Where the trials are on each parameter: the best quarter as ●, the others as ·."""
    count = max(1, len(data.numbers) // 4)
    order = sorted(range(len(data.numbers)), key=lambda at: data.first[at], reverse=not data.minimize[0])
    top = set(order[:count])
    width = max((len(axis.name) for axis in data.parameters), default=0)
    lines = [f"parameters of {data.title} (● the best {count} of {len(data.numbers)})"]
    for axis in data.parameters:
        cells = ["─"] * _STRIP_WIDTH
        for at, place in sorted(enumerate(axis.places), key=lambda each: each[0] in top):
            if place is not None:
                cells[round(place * (_STRIP_WIDTH - 1))] = "●" if at in top else "·"
        lines.append(f"{axis.name:<{width}}  {axis.low:>10} {''.join(cells)} {axis.high}")
    return lines


def draw_importance(data: SearchData) -> list[str]:
    """A bar per parameter."""
    width = max((len(axis.name) for axis in data.parameters), default=0)
    bars = [
        f"{name:<{width}}  {value:4.2f} {'█' * round(value * _STRIP_WIDTH)}"
        for name, value in importance(data)
    ]
    return [f"part of the variance of {data.metrics[0]} that each parameter explains alone", *bars]


def draw_pareto(data: SearchData) -> list[str]:
    """The first two objectives of each trial; those that none beats as ●."""
    points = [
        (value[0], value[1], "●" if number in data.best else "·")
        for number, value in zip(data.numbers, data.values, strict=True)
    ]
    points.sort(key=lambda each: each[2] == "●")
    return _scatter(points, f"{data.metrics[1]} of {data.title} (● Pareto front)", data.metrics[0])


def _scatter(points: Sequence[tuple[float, float, str]], title: str, below: str) -> list[str]:
    left, right = min(x for x, _, _ in points), max(x for x, _, _ in points)
    low, high = min(y for _, y, _ in points), max(y for _, y, _ in points)
    cells = [[" "] * _PLOT_WIDTH for _ in range(_PLOT_HEIGHT)]
    for x, y, mark in points:
        column = round((x - left) / (right - left) * (_PLOT_WIDTH - 1)) if right > left else 0
        row = round((high - y) / (high - low) * (_PLOT_HEIGHT - 1)) if high > low else _PLOT_HEIGHT // 2
        cells[row][column] = mark
    names = {0: number(high), _PLOT_HEIGHT - 1: number(low)}
    lines = [f"{names.get(at, ''):>11} │{''.join(row).rstrip()}" for at, row in enumerate(cells)]
    span = f"{number(left)}{number(right):>{_PLOT_WIDTH - len(number(left))}}"
    return [title, *lines, " " * 12 + "└" + "─" * _PLOT_WIDTH, f"{'':13}{span}", f"{'':13}{below}"]


def _axis(parameter: Parameter, trials: Sequence[Trial]) -> Axis:
    values = [each.spec.parameters.get(parameter.name) for each in trials]
    if parameter.type == "categorical":
        choices = [str(each) for each in parameter.choices]
        most = max(1, len(choices) - 1)
        places = [None if value is None else choices.index(str(value)) / most for value in values]
        return Axis(parameter.name, tuple(places), choices[0], choices[-1], levels=len(choices))
    low, high = parameter.min or 0.0, parameter.max or 0.0

    def place(value: Any) -> float | None:
        if value is None:
            return None
        ends = (low, high, float(value))
        start, end, at = (math.log(each) for each in ends) if parameter.log else ends
        return (at - start) / (end - start) if end > start else 0.0

    return Axis(parameter.name, tuple(map(place, values)), number(low), number(high))


def _explained(axis: Axis, values: Sequence[float]) -> float:
    known = sorted(
        (place, value) for place, value in zip(axis.places, values, strict=True) if place is not None
    )
    if len(known) < 3:
        return 0.0
    groups: dict[object, list[float]] = {}
    for at, (place, value) in enumerate(known):
        key = place if axis.levels else at * min(4, len(known) // 2) // len(known)
        groups.setdefault(key, []).append(value)
    count, several = len(known), len(groups)
    mean = sum(value for _, value in known) / count
    total = sum((value - mean) ** 2 for _, value in known)
    if total <= 0 or count <= several:
        return 0.0
    within = sum(sum((v - sum(part) / len(part)) ** 2 for v in part) for part in groups.values())
    return min(1.0, max(0.0, 1 - within / total * (count - 1) / (count - several)))
