"""The pods to place: `name,cpu_milli,memory_mib,num_gpu,gpu_milli`, one a line.

`gpu_milli` is of each of the pod's GPUs: a part of one GPU, or any number of whole ones. `gpu_spec`, if
there is such a column, names the models that will do (`V100M16|V100M32`); other columns are not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.errors import BadInput
from shoal.simulate.packing.nodes import GPU
from shoal.simulate.tables import Row, amount, read_rows

__all__ = ["Pods", "Shapes", "read_pods"]

_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


@dataclass(frozen=True)
class Shapes:
    """`s` different requests."""

    cpu: NDArray[np.int64]
    """(s,): thousandths of a core."""
    memory: NDArray[np.int64]
    """(s,): MiB."""
    gpus: NDArray[np.int64]
    """(s,): how many GPUs, 0 for none."""
    milli: NDArray[np.int64]
    """(s,): of each of them; 1000 with more than one, 0 with none."""
    models: tuple[frozenset[str], ...]
    """(s,): the models that will do; any, where empty."""

    def __len__(self) -> int:
        return len(self.cpu)

    @property
    def gpu_milli(self) -> NDArray[np.int64]:
        """(s,): of all GPUs of the shape together."""
        return self.gpus * self.milli

    def allowed(self, models: tuple[str, ...]) -> NDArray[np.bool_]:
        """(s, models): which of a cluster's models will do."""
        return np.array([[not able or name in able for name in models] for able in self.models])


@dataclass(frozen=True)
class Pods:
    """Pods in the file's order."""

    shapes: Shapes
    """In the order in which they come first."""
    shape: NDArray[np.int64]
    """(p,): of each pod."""

    def __len__(self) -> int:
        return len(self.shape)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(s,): how many pods have each shape."""
        return np.bincount(self.shape, minlength=len(self.shapes))


def read_pods(path: Path) -> Pods:
    """The file's pods. Raises `BadInput`."""
    names: set[str] = set()
    number: dict[tuple[int, int, int, int, frozenset[str]], int] = {}
    shape: list[int] = []
    for where, row in read_rows(path, _COLUMNS):
        name = row["name"] or ""
        if not name or name in names:
            raise BadInput(f"{where}: a pod needs a name of its own, not {name!r}")
        names.add(name)
        shape.append(number.setdefault(_request(where, row), len(number)))
    amounts = np.array([each[:4] for each in number], dtype=np.int64)
    shapes = Shapes(*amounts.T, models=tuple(each[4] for each in number))
    return Pods(shapes, np.array(shape, dtype=np.int64))


def _request(where: str, row: Row) -> tuple[int, int, int, int, frozenset[str]]:
    cpu, memory, gpus, milli = (amount(where, row, column) for column in _COLUMNS[1:])
    if gpus == 0 or milli == 0:
        if gpus != milli:
            raise BadInput(f"{where}: {gpus} GPUs of {milli} thousandths: both are 0, or neither")
    elif milli > GPU or (gpus > 1 and milli != GPU):
        asked = gpus * milli / GPU
        raise BadInput(f"{where}: a part of one GPU or whole ones can be had, not {asked:g} of {gpus}")
    able = frozenset(word.strip() for word in (row.get("gpu_spec") or "").split("|") if word.strip())
    return cpu, memory, gpus, milli, able if gpus else frozenset()
