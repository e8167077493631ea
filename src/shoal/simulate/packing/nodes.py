"""The nodes of a cluster: `sn,cpu_milli,memory_mib,gpu,model`, one a line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.errors import BadInput
from shoal.simulate.tables import amount, read_rows

__all__ = ["GPU", "Nodes", "read_nodes"]

GPU = 1000
"""Milli-GPUs of a whole GPU."""

_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_MOST_GPUS = 64


@dataclass(frozen=True)
class Nodes:
    """`n` nodes with at least one GPU each, in the file's order."""

    names: tuple[str, ...]
    cpu: NDArray[np.int64]
    """(n,): thousandths of a core."""
    memory: NDArray[np.int64]
    """(n,): MiB."""
    gpus: NDArray[np.int64]
    """(n,): how many."""
    kind: NDArray[np.int64]
    """(n,): nodes that are alike when they are empty have the same number, from 0."""
    kind_model: NDArray[np.int64]
    """(kinds,): index into `models`."""
    models: tuple[str, ...]
    """Of GPUs, sorted."""
    without_gpu: int
    """So many more were in the file; they take no part."""

    @property
    def gpu_milli(self) -> int:
        """All GPUs together."""
        return int(self.gpus.sum()) * GPU

    def thinned(self, every: int) -> Nodes:
        """Of each kind the first node, and every so-manyth after it."""
        order = np.argsort(self.kind, kind="stable")
        first = np.searchsorted(self.kind[order], self.kind[order])
        keep: NDArray[np.int64] = np.sort(order[(np.arange(len(order)) - first) % every == 0])
        kept: list[int] = keep.tolist()
        return replace(
            self,
            names=tuple(self.names[node] for node in kept),
            cpu=self.cpu[keep],
            memory=self.memory[keep],
            gpus=self.gpus[keep],
            kind=self.kind[keep],
        )


def read_nodes(path: Path) -> Nodes:
    """The file's nodes that have a GPU. Raises `BadInput`."""
    rows = read_rows(path, _COLUMNS)
    names: set[str] = set()
    found: list[tuple[str, int, int, int, str]] = []
    for where, row in rows:
        name = row["sn"] or ""
        if not name or name in names:
            raise BadInput(f"{where}: a node needs a name of its own, not {name!r}")
        names.add(name)
        cpu, memory, gpus = (amount(where, row, column) for column in _COLUMNS[1:4])
        if gpus > _MOST_GPUS:
            raise BadInput(f"{where}: a node has {_MOST_GPUS} GPUs at most, not {gpus}")
        if gpus:
            found.append((name, cpu, memory, gpus, row["model"] or ""))
    if not found:
        raise BadInput(f"{path}: none of its {len(rows)} nodes has a GPU")
    models = tuple(sorted({each[4] for each in found}))
    amounts = np.array([(*each[1:4], models.index(each[4])) for each in found], dtype=np.int64)
    kinds, kind = np.unique(amounts, axis=0, return_inverse=True)
    return Nodes(
        names=tuple(each[0] for each in found),
        cpu=amounts[:, 0],
        memory=amounts[:, 1],
        gpus=amounts[:, 2],
        kind=kind,
        kind_model=kinds[:, 3],
        models=models,
        without_gpu=len(rows) - len(found),
    )
