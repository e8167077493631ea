"""Points of a search space: sampling, grids, perturbation, and which parameters exist at a point.

A point maps the names of the parameters that exist to values: floats, ints, or texts of choices.
Randomness is a `random.Random` with the seed `seed_for(seed, number)`: the point of a trial depends on
its number and on recorded results, never on what this process has drawn before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from random import Random
from typing import Any, cast

from shoal.objects.experiment import Parameter, rendered

__all__ = ["Point", "exists", "grid_point", "perturbed", "sampled", "seed_for"]

Point = dict[str, Any]
"""Parameter to value; conditional parameters that do not exist are absent."""


def seed_for(seed: int, number: int) -> int:
    """The seed of the sampler for the trial of that number, below 2^32."""
    return int.from_bytes(sha256(f"{seed}:{number}".encode()).digest()[:4], "big")


def exists(parameter: Parameter, point: Mapping[str, Any]) -> bool:
    """Whether the parameter exists beside the values of the earlier ones."""
    when = parameter.when
    if when is None:
        return True
    return when.parameter in point and rendered(point[when.parameter]) in when.values


def sampled(parameters: Sequence[Parameter], random: Random, fixed: Mapping[str, Any]) -> Point:
    """A point drawn uniformly (on its scale) for each parameter that `fixed` does not name."""
    point: Point = {}
    for each in parameters:
        drawn = _drawn(each, random)  # also where it is fixed: the other values stay the same
        if exists(each, point):
            point[each.name] = fixed.get(each.name, drawn)
    return point


def grid_point(parameters: Sequence[Parameter], sizes: Sequence[int], number: int) -> Point:
    """The point of that number; the last parameter varies fastest."""
    point: Point = {}
    for parameter, size in zip(reversed(parameters), reversed(sizes), strict=True):
        number, at = divmod(number, size)
        point[parameter.name] = _grid_value(parameter, at, size)
    return {each.name: point[each.name] for each in parameters}


def perturbed(
    parameters: Sequence[Parameter],
    point: Mapping[str, Any],
    random: Random,
    *,
    factor: float,
    resample: float,
) -> Point:
    """A neighbour: each number times or divided by `factor`, each choice one further; with probability
    `resample` a parameter is drawn anew (Jaderberg et al., Population Based Training, 2017)."""
    made: Point = {}
    for each in parameters:
        drawn, again, up = _drawn(each, random), random.random() < resample, random.random() < 0.5
        value = point.get(each.name)
        if again or value is None:
            made[each.name] = drawn
        elif each.type == "categorical":
            at = each.choices.index(value) + (1 if up else -1)
            made[each.name] = each.choices[max(0, min(at, len(each.choices) - 1))]
        else:
            moved = value * factor if up else value / factor
            if each.type == "int" and round(moved) == value:
                moved = value + (1 if up else -1)
            made[each.name] = _snapped(each, moved)
    return made


def _drawn(parameter: Parameter, random: Random) -> Any:
    if parameter.type == "categorical":
        return parameter.choices[random.randrange(len(parameter.choices))]
    low, high = _range(parameter)
    if parameter.log:
        # of whole numbers each has the width that it has on the scale
        half = 0.5 if parameter.type == "int" else 0.0
        number = math.exp(random.uniform(math.log(low - half), math.log(high + half)))
        return _snapped(parameter, number)
    step = _step(parameter)
    if step is not None:
        return _snapped(parameter, low + step * random.randrange(_steps(low, high, step) + 1))
    return _snapped(parameter, random.uniform(low, high))


def _grid_value(parameter: Parameter, at: int, size: int) -> Any:
    if parameter.type == "categorical":
        return parameter.choices[at]
    low, high = _range(parameter)
    step = _step(parameter)
    if step is not None and not parameter.log:
        return _snapped(parameter, low + at * step)
    share = at / (size - 1) if size > 1 else 0.0
    if parameter.log:
        return _snapped(parameter, math.exp(math.log(low) + share * (math.log(high) - math.log(low))))
    return _snapped(parameter, low + share * (high - low))


def _snapped(parameter: Parameter, number: float) -> int | float:
    """The nearest value of the parameter."""
    low, high = _range(parameter)
    step = _step(parameter)
    if step is not None and not parameter.log:
        at = max(0, min(round((number - low) / step), _steps(low, high, step)))
        number = low + at * step
    number = min(max(number, low), high)
    return round(number) if parameter.type == "int" else float(number)


def _range(parameter: Parameter) -> tuple[float, float]:
    return cast("float", parameter.min), cast("float", parameter.max)


def _step(parameter: Parameter) -> float | None:
    return parameter.step or (1.0 if parameter.type == "int" else None)


def _steps(low: float, high: float, step: float) -> int:
    return int((high - low) / step + 1e-9)
