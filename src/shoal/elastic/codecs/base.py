"""What a codec is: it turns a bucket into tensors to be summed, round after round, and the sums back."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

__all__ = ["Bucket", "Codec", "Rounds", "views"]

Rounds = Generator[torch.Tensor, None, None]


@dataclass(frozen=True)
class Bucket:
    """Gradients of the parameters with these shapes, one after another in `flat`, which is 1-D and holds
    nothing else: a control vector is summed apart from it. Gradients are already weighted, so that the
    sum over ranks is the average; `number` is the bucket's place, the same on all ranks."""

    number: int
    flat: torch.Tensor
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        elements = sum(_count(shape) for shape in self.shapes)
        if self.flat.ndim != 1 or self.flat.numel() != elements:
            raise ValueError(
                f"bucket {self.number} has shape {tuple(self.flat.shape)}, "
                f"its gradients have {elements} elements"
            )


class Codec(Protocol):
    """One per rank and set of buckets. All calls come from the training thread, and every rank makes the
    same ones in the same order.

    What all ranks must have alike (scales, PowerSGD's Q) begins anew from the epoch with each view, so a
    member that joins needs nothing. What a rank owes (residuals) is its own: it changes in `commit`, and
    a step that is run again begins from what was owed before it.
    """

    @property
    def name(self) -> str:
        """As in the catalogue."""
        ...

    def exchange(self, bucket: Bucket) -> Rounds:
        """Each tensor it gives is to be summed over all ranks, in place, before the next is asked for.
        When it ends, `bucket.flat` holds the sum, bit for bit the same on all ranks that hold the same
        sums and compute alike. Between the first tensor and the end, `bucket.flat` is the codec's.

        Raises:
            RuntimeError: an earlier exchange of the bucket did not end, and no new view has come.
        """
        ...

    def commit(self) -> None:
        """The step of the exchanges since the last commit is applied: what they left out is owed now."""
        ...

    def rollback(self) -> None:
        """That step will be run again: what was owed before it is owed still."""
        ...

    def forget(self, number: int) -> None:
        """This bucket's sum came from a peer: what this rank's part in it left out is unknown, so it
        owes nothing (at most one step's rounding is lost)."""
        ...

    def view_changed(self, epoch: int) -> None:
        """From here on exchanges are among the members of that epoch."""
        ...

    def owed(self) -> dict[int, torch.Tensor]:
        """By bucket, what this rank owes since the last commit: like the bucket's `flat`."""
        ...


def views(flat: torch.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    """`flat` as tensors of these shapes, one after another, sharing its memory."""
    found: list[torch.Tensor] = []
    offset = 0
    for shape in shapes:
        count = _count(shape)
        found.append(flat[offset : offset + count].view(shape))
        offset += count
    return found


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
