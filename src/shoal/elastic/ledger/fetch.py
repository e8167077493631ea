"""The order of the samples of an epoch, and the batch at positions in it.

The order is a pure function of (seed, epoch, length).
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from shoal.elastic.errors import ElasticError

__all__ = ["Fetch", "Order", "length_of"]


class Order:
    """Sample indices in the order of an epoch; the current epoch's are kept."""

    def __init__(self, length: int, seed: int, shuffle: bool = True) -> None:
        self.length = length
        self.seed = seed
        self.shuffle = shuffle
        self._epoch = -1
        self._indices: torch.Tensor | None = None

    def indices(self, epoch: int, first: int, end: int) -> list[int]:
        """The samples at positions `[first, end)` of this epoch."""
        if not self.shuffle:
            return list(range(first, end))
        if self._indices is None or epoch != self._epoch:
            # the two are mixed so that (seed, epoch) and (seed + 1, epoch - 1) differ
            generator = torch.Generator().manual_seed((self.seed * 0x9E3779B1 + epoch) % (1 << 63))
            self._indices = torch.randperm(self.length, generator=generator)
            self._epoch = epoch
        return self._indices[first:end].tolist()


Collate = Callable[[list[Any]], Any]


def length_of(dataset: Any) -> int:
    """The number of samples.

    Raises:
        ElasticError: it has no length, or none that can be used.
    """
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise ElasticError("job.shards() takes the dataset itself, not a DataLoader around it")
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise ElasticError(
            f"job.shards() takes a dataset with len() and [index], not a {type(dataset).__name__}: "
            "samples are dealt anew whenever workers come or go"
        )
    try:
        first, second = len(dataset), len(dataset)
    except TypeError as error:
        raise ElasticError(f"the dataset has no length: {error}") from error
    if first != second:
        raise ElasticError(f"the dataset's length changes while one looks: {first}, then {second}")
    if not first:
        raise ElasticError("the dataset is empty")
    return first


class Fetch:
    """Makes batches of samples as torch's DataLoader does by default."""

    def __init__(self, dataset: Any, collate: Collate | None = None) -> None:
        self._dataset = dataset
        self._collate = collate
        whole = isinstance(dataset, TensorDataset) and collate is None
        self._tensors: tuple[torch.Tensor, ...] | None = dataset.tensors if whole else None

    def __call__(self, indices: Sequence[int]) -> Any:
        """The batch of these samples.

        Raises:
            ElasticError: the dataset has no such sample.
        """
        if self._tensors is not None:
            where = torch.as_tensor(indices)
            return [tensor[where] for tensor in self._tensors]
        try:
            if hasattr(self._dataset, "__getitems__"):
                samples = list(self._dataset.__getitems__(list(indices)))
            else:
                samples = [self._dataset[index] for index in indices]
        except IndexError as error:
            raise ElasticError(
                f"the dataset is shorter than its len() said at the start: {error}"
            ) from error
        return (self._collate or default_collate)(samples)
