"""The order of the samples of an epoch: a pure function of (seed, epoch, length)."""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch

__all__ = ["Order"]


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
