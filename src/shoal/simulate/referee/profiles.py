"""Applications as they were measured: step times over placements, gradient noise over batch sizes.

A folder per application holds three kinds of CSV file:

- `placements.csv` (placement, local_bsz, step_time, sync_time): a placement is a string of digits, the
  replicas on each node (`112`: three nodes with 1, 1 and 2)
- `scalability.csv` (num_nodes, num_replicas, local_bsz, step_time, sync_time): larger ones
- `validation-B.csv` (progress, iteration, metric, grad_sqr, grad_var): a row per epoch at batch size B

Times are in seconds; batch sizes in samples; gradients as squared norm and variance of one batch of the
smallest size (McCandlish et al. 2018, as Pollux uses them).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.errors import BadInput
from shoal.simulate.tables import read_rows

__all__ = ["Application", "Placement", "read_applications"]

Placement = tuple[int, ...]
"""Replicas on each node."""

Floats = NDArray[np.float64]

_MOST_NODES_MEASURED = 16

_LIMITS: dict[str, dict[str, int]] = {
    "yolov3": {"most_local": 8},
    "ncf": {"batch": 32768, "most_replicas": 1},
}
"""What the published simulator holds fixed beside the measurements: memory of one GPU; a recommender
that trains on one."""


class Application:
    """One application. `name` is its folder's.

    Raises `BadInput` when a file is missing or has other columns.
    """

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        limits = _LIMITS.get(self.name, {})
        self._epochs = {batch: _read(path, _EPOCH) for batch, path in _validations(folder)}
        self.sizes = sorted(self._epochs)
        """Batch sizes that were measured."""
        self.initial_batch = self.sizes[0]
        self.most_batch = self.sizes[-1]
        self.epochs = min(len(rows) for rows in self._epochs.values())
        self.batch = limits.get("batch")
        """Fixed, where not None."""
        self.most_replicas = limits.get("most_replicas")
        self.progress = [
            min(float(rows[epoch, 0]) for rows in self._epochs.values()) for epoch in range(self.epochs)
        ]
        """At the end of each epoch."""
        self._groups = _read(folder / "scalability.csv", _TIMES_BY_COUNT)
        self._placements = _by_placement(folder / "placements.csv")
        local = [size for sizes, _ in self._placements.values() for size in sizes]
        self.least_local, self.most_local = int(min(local)), limits.get("most_local", int(max(local)))
        self._known: dict[tuple[Placement, int], tuple[float, float]] = {}

    def step_times(self, placement: Placement, local: int) -> tuple[float, float]:
        """Seconds of one step at `local` samples a replica, and how many of them go into agreeing on
        the gradient. Linear between measurements; of a placement that was measured the first and the
        last hold beyond them. Raises `BadInput` for others outside of what was measured."""
        key = (_canonical(placement), local)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._times(*key)
        return found

    def gradient(self, batch: int, epoch: int) -> tuple[float, float]:
        """Squared norm and variance in this epoch, from 0; linear between batch sizes."""
        _, _, sqr, var = self._row(batch, epoch)
        return sqr, var

    def iterations(self, batch: int, epoch: int) -> float:
        """Steps done at the end of this epoch, from 0, had it been trained so from the start."""
        return self._row(batch, epoch)[1]

    def efficiency(self, batch: int, epoch: int) -> float:
        """Progress per step, in steps of the smallest batch."""
        sqr, var = self.gradient(batch, epoch)
        return (var + sqr) / (var / (batch / self.initial_batch) + sqr)

    def replicas_for(self, batch: int) -> int:
        """How many could share this batch, one at least."""
        return self.most_replicas or max(1, batch // self.least_local)

    def _times(self, placement: Placement, local: int) -> tuple[float, float]:
        listed = self._placements.get(placement)
        if listed is not None:
            sizes, times = listed
            step, sync = (float(np.interp(local, sizes, times[:, column])) for column in (0, 1))
            return step, sync
        at = (min(len(placement), _MOST_NODES_MEASURED), sum(placement), local)
        step, sync = self._surface([at])[0].tolist()
        if math.isnan(step):
            shape = "".join(map(str, placement))
            raise BadInput(f"{self.name} was not measured on {shape} with {local} samples a replica")
        return step, sync

    @cached_property
    def _surface(self) -> Any:
        """Step and sync times over (nodes, replicas, local), between the means of what was measured."""
        try:
            interpolate = import_module("scipy.interpolate")
        except ImportError as error:
            raise BadInput("simulating needs scipy", hint="pip install 'shoal[simulate]'") from error
        rows: dict[tuple[int, int, float], list[Floats]] = {}
        for placement, (sizes, times) in self._placements.items():
            for size, pair in zip(sizes, times, strict=True):
                rows.setdefault((len(placement), sum(placement), float(size)), []).append(pair)
        means = [(*key, *np.mean(rows[key], axis=0).tolist()) for key in sorted(rows)]
        table = np.array(means + self._groups.tolist(), dtype=np.float64)
        return interpolate.LinearNDInterpolator(table[:, :3], table[:, 3:])

    def _row(self, batch: int, epoch: int) -> list[float]:
        """What `_EPOCH` names, at any batch size in between."""
        if batch in self._epochs:
            return self._epochs[batch][epoch].tolist()
        place = bisect_left(self.sizes, batch)
        if not 0 < place < len(self.sizes):
            span = f"{self.sizes[0]} to {self.sizes[-1]}"
            raise BadInput(f"{self.name} was measured with batches of {span}, not of {batch}")
        below, above = self.sizes[place - 1], self.sizes[place]
        low, high = self._epochs[below][epoch], self._epochs[above][epoch]
        return (low + (batch - below) / (above - below) * (high - low)).tolist()


def read_applications(folder: Path) -> dict[str, Application]:
    """All applications under a folder. Raises `BadInput`."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder of applications' profiles")
    found = {
        each.name: Application(each)
        for each in sorted(folder.iterdir())
        if (each / "placements.csv").exists()
    }
    if not found:
        raise BadInput(f"{folder} holds no folder with a placements.csv")
    return found


_EPOCH = ("progress", "iteration", "grad_sqr", "grad_var")
_TIMES = ("local_bsz", "step_time", "sync_time")
_TIMES_BY_COUNT = ("num_nodes", "num_replicas", *_TIMES)


def _validations(folder: Path) -> list[tuple[int, Path]]:
    found: list[tuple[int, Path]] = []
    for path in sorted(folder.glob("validation-*.csv")):
        size = path.stem.removeprefix("validation-")
        if not size.isdigit() or int(size) == 0:
            raise BadInput(f"{path} should be named after a batch size")
        found.append((int(size), path))
    if not found:
        raise BadInput(f"{folder} holds no validation-BATCH.csv")
    return found


def _by_placement(path: Path) -> dict[Placement, tuple[Floats, Floats]]:
    """Canonical placement to local batch sizes, ascending, and (step, sync) times."""
    rows: dict[Placement, list[tuple[float, float, float]]] = {}
    for text, *numbers in _rows(path, ("placement", *_TIMES)):
        if not text.isdigit() or "0" in text:
            raise BadInput(f"{path}: {text!r} is no placement")
        size, step, sync = _numbers(path, numbers)
        rows.setdefault(tuple(map(int, text)), []).append((size, step, sync))
    tables = {key: np.array(sorted(each), dtype=np.float64) for key, each in rows.items()}
    return {key: (table[:, 0], table[:, 1:]) for key, table in tables.items()}


def _canonical(placement: Sequence[int]) -> Placement:
    there = tuple(each for each in placement if each)
    return min(there[turn:] + there[:turn] for turn in range(len(there)))


def _read(path: Path, columns: Sequence[str]) -> Floats:
    rows = [_numbers(path, row) for row in _rows(path, columns)]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(columns))


def _rows(path: Path, columns: Sequence[str]) -> list[list[str]]:
    rows = read_rows(path, columns, empty="has no rows")
    return [[row[column] or "" for column in columns] for _, row in rows]


def _numbers(path: Path, texts: Sequence[str]) -> list[float]:
    try:
        numbers = [float(text) for text in texts]
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from error
    if not all(math.isfinite(number) for number in numbers):
        raise BadInput(f"{path} holds a number that is not finite")
    return numbers
