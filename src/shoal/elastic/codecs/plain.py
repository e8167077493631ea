"""No codec: the bucket itself is summed."""

from __future__ import annotations

import torch

from shoal.elastic.codecs.base import Bucket, Rounds

__all__ = ["Plain"]


class Plain:
    """See `Codec`. It has no state and copies nothing."""

    name = "none"

    def exchange(self, bucket: Bucket) -> Rounds:
        """One round: the bucket."""
        yield bucket.flat

    def commit(self) -> None:
        """Nothing is owed."""

    def rollback(self) -> None:
        """Nothing is owed."""

    def forget(self, number: int) -> None:
        """Nothing is owed."""

    def view_changed(self, epoch: int) -> None:
        """Nothing is shared."""

    def owed(self) -> dict[int, torch.Tensor]:
        """Nothing."""
        return {}
