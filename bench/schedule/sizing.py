"""Sizes of elastic jobs: curves, weights and the choice, for 5,000 jobs on 100,000 GPUs.

`python -m bench.schedule.sizing`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.row import Row, table
from bench.schedule.timing import cpu_seconds, row
from shoal.schedule.sizing.choose import Demand, choose
from shoal.schedule.sizing.curves import Curves, concave, size_grid
from shoal.schedule.sizing.weights import weights

__all__ = ["rows"]

_JOBS = 5000
_GPUS = 100_000
_HORIZON = 200.0
_RESTART = 30.0


def rows() -> list[Row]:
    """All of it, for jobs of up to 64 GPUs, which is what the published policies are given, and of up to
    256; then its parts."""
    small, large = _Jobs(64), _Jobs(256)
    beside = "Pollux 1.6 s for tens of jobs on 64 GPUs (published)"
    return [
        _row("re-size, jobs of up to 64 GPUs", 50, small.resize, beside),
        _row("re-size, jobs of up to 256 GPUs", 50, large.resize),
        _row("of 64: curves", 20, small.curves),
        _row("of 64: weights", 30, small.weights),
        _row("of 64: sizes, nobody has any", 20, small.first),
        _row("of 64: sizes, a hundred newcomers", 20, small.newcomers),
    ]


def _row(what: str, goal: float, work: Callable[[], object], beside: str = "") -> Row:
    return row(
        f"{what}; {_JOBS:,} jobs, {_GPUS:,} GPUs", goal, "ms", cpu_seconds(work, repeats=15), beside
    )


class _Jobs:
    """Speeds rise with a power of the size from 0.4 to 0.95; what is left is log-normal."""

    def __init__(self, largest: int) -> None:
        random = np.random.default_rng(0)
        self._grid = size_grid(8, largest)
        power = random.uniform(0.4, 0.95, _JOBS)
        self._speed = self._grid.astype(np.float64) ** power[:, np.newaxis]
        self._remaining = random.lognormal(8, 1.5, _JOBS)
        self._order = np.argsort(-self._remaining, kind="stable").tolist()
        self._made = self.curves()
        self._weight = self.weights()
        self._sizes = self.first()
        if self._sizes.sum() != _GPUS:
            raise RuntimeError("so many jobs use all GPUs")

    def resize(self) -> np.ndarray:
        made = self.curves()
        return self._chosen(made, weights(made, self._order, _GPUS), self._sizes)

    def curves(self) -> Curves:
        return concave(self._grid, self._speed)

    def weights(self) -> np.ndarray:
        return weights(self._made, self._order, _GPUS)

    def first(self) -> np.ndarray:
        return self._chosen(self._made, self._weight, np.zeros(_JOBS, np.int64))

    def newcomers(self) -> np.ndarray:
        now = self._sizes.copy()
        now[:: _JOBS // 100] = 0
        return self._chosen(self._made, self._weight, now)

    def _chosen(self, made: Curves, weight: np.ndarray, now: np.ndarray) -> np.ndarray:
        restart = np.full(_JOBS, _RESTART)
        return choose(Demand(made, weight, now, self._remaining, restart), _GPUS, _HORIZON)


def main() -> None:
    """Print the table."""
    print(table(rows()))


if __name__ == "__main__":
    main()
