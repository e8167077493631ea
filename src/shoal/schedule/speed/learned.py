"""The curve of a job from how its steps went: progress per second with 1, 2, ... tasks.

    seconds of a step  =  fixed + divided / tasks + shared * (tasks - 1)

What is fixed, what is divided among tasks, and what each further task adds for all: none below nothing,
no more of them than the steps need to be explained by. Where steps were measured the curve goes through
the measurements, and in between it is corrected by what was missed there. What was not seen is taken to
cost nothing, so that a job tries a larger size once; and no further than twice what it has tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pace", "Slower", "hopeful", "learned", "shared", "slower_with_more"]

Floats = NDArray[np.float64]

_TERMS = ((1,), (0, 1), (1, 2), (0, 1, 2), (0,), (0, 2), (2,))
"""Which of the three parts there are: those that promise most of larger sizes first."""
_WORTH = 0.02
"""One more part has to explain so much more of a step."""
_LEAST_GAIN = 0.01
"""Of one more task, as long as nobody is sure of less: it gets what nobody else wants, and gives it up
first."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long steps took, of the same work each. Raises ValueError for what no step can be."""

    tasks: int
    seconds: float
    """Of one step, the mean."""
    steps: int = 1
    """So many were seen."""

    def __post_init__(self) -> None:
        if self.tasks < 1 or self.steps < 1:
            raise ValueError(f"{self.steps} steps with {self.tasks} tasks: nothing was seen")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(f"a step with {self.tasks} tasks did not take {self.seconds:g} s")


def learned(paces: Iterable[Pace], most: int) -> tuple[float, ...]:
    """Steps per second with 1, 2, ... tasks, up to `most` or twice the largest size seen; empty where
    nothing was seen."""
    seen = _by_tasks(paces)
    if not seen:
        return ()
    tasks = np.array(sorted(seen), dtype=np.float64)
    seconds = np.array([seen[int(count)] for count in tasks])
    sizes = np.arange(1, max(1, min(most, 2 * int(tasks[-1]))) + 1, dtype=np.float64)
    parts = _fitted(tasks, seconds)
    missed = seconds / (_columns(tasks) @ parts)
    predicted = (_columns(sizes) @ parts) * np.interp(sizes, tasks, missed)
    return tuple((1.0 / predicted).tolist())


def shared(own: Iterable[Pace], others: Iterable[Pace]) -> list[Pace]:
    """A job's own paces, and beside them, at sizes that it has not had, those of other jobs of its
    application: as much faster or slower as it is where both have been seen."""
    mine, theirs = list(own), list(others)
    here, there = _by_tasks(mine), _by_tasks(theirs)
    both = sorted(here[size] / there[size] for size in here if size in there)
    factor = both[len(both) // 2] if both else 1.0
    beside = [
        Pace(tasks=each.tasks, seconds=each.seconds * factor, steps=each.steps)
        for each in theirs
        if each.tasks not in here
    ]
    return [*mine, *beside]


def hopeful(speeds: Sequence[float], least: int, sure: int) -> tuple[float, ...]:
    """A curve in which each task gains something, but for those between `least`, the smallest size that
    was seen, and `sure`. Steps are slower for a while for many reasons: they are the first at that size,
    or something else runs beside them."""
    found = list(speeds)
    for at in range(min(least, len(found)) - 2, -1, -1):
        found[at] = min(found[at], found[at + 1] / (1.0 + _LEAST_GAIN))
    for at in range(max(least, sure), len(found)):
        found[at] = max(found[at], found[at - 1] * (1.0 + _LEAST_GAIN))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Slower:
    """More tasks make it slower. Speeds are steps per second."""

    best: int
    """It is fastest with so many."""
    speed: float
    most: int
    """As many as it has had."""
    with_most: float


def slower_with_more(speeds: Sequence[float], sure: int) -> Slower | None:
    """Whether a job is faster with fewer than `sure` tasks than with any more (see `hopeful`)."""
    most = min(sure, len(speeds))
    best = max(range(len(speeds)), key=speeds.__getitem__, default=most - 1) + 1
    if best >= most:
        return None
    return Slower(best=best, speed=speeds[best - 1], most=most, with_most=speeds[most - 1])


def _by_tasks(paces: Iterable[Pace]) -> dict[int, float]:
    """Mean seconds of a step at each size."""
    total: dict[int, tuple[float, int]] = {}
    for each in paces:
        seconds, steps = total.get(each.tasks, (0.0, 0))
        total[each.tasks] = (seconds + each.seconds * each.steps, steps + each.steps)
    return {size: seconds / steps for size, (seconds, steps) in total.items()}


def _columns(tasks: Floats) -> Floats:
    return np.stack((np.ones_like(tasks), 1.0 / tasks, tasks - 1.0), axis=1)


def _fitted(tasks: Floats, seconds: Floats) -> Floats:
    """The parts that miss least in relative terms. With one size seen all of a step is divided."""
    relative = _columns(tasks) / seconds[:, None]
    best: Floats | None = None
    least = math.inf
    for terms in _TERMS:
        if len(terms) > len(tasks):
            continue
        found = _solved(relative, terms)
        if found is None:
            continue
        missed = float(np.sqrt(np.mean((relative @ found - 1.0) ** 2)))
        if missed < least - _WORTH:
            best, least = found, missed
    if best is None:
        raise AssertionError("steps take time, and that can always be divided")
    return best


def _solved(relative: Floats, terms: Sequence[int]) -> Floats | None:
    chosen = list(terms)
    parts = np.linalg.lstsq(relative[:, chosen], np.ones(len(relative)), rcond=None)[0]
    if (parts < 0).any():
        return None
    found = np.zeros(3)
    found[chosen] = parts
    return found
