"""A step's samples dealt to ranks, and a rank's share cut into parts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.elastic.view import Cursor

__all__ = ["Part", "Step", "advance", "next_step", "parts_of", "share_of"]


@dataclass(frozen=True)
class Step:
    """The samples of one step: positions `[first, end)` of the order of `epoch`."""

    epoch: int
    first: int
    end: int

    @property
    def samples(self) -> int:
        """How many."""
        return self.end - self.first


@dataclass(frozen=True)
class Part:
    """What one pass of the loop body is handed: positions `[first, end)`; its gradient counts `weight`.

    A part without samples of its own (`end == first`) has weight 0.
    """

    first: int
    end: int
    weight: float
    last: bool

    @property
    def samples(self) -> int:
        """How many."""
        return self.end - self.first


def next_step(cursor: Cursor, length: int, batch: int, epochs: int) -> Step | None:
    """The step that begins at the cursor; None when all epochs are over. The last of an epoch may be
    smaller."""
    if cursor.position >= length:  # of a longer dataset: a checkpoint may have been taken with that
        cursor = Cursor(cursor.epoch + 1, 0)
    if cursor.epoch >= epochs or length == 0:
        return None
    return Step(cursor.epoch, cursor.position, min(cursor.position + batch, length))


def advance(step: Step, length: int) -> Cursor:
    """Where the training stands once the step is applied."""
    return Cursor(step.epoch + 1, 0) if step.end >= length else Cursor(step.epoch, step.end)


def share_of(step: Step, rank: int, size: int) -> tuple[int, int]:
    """Positions `[first, end)` that a rank is dealt: shares differ by one sample at most."""
    each, over = divmod(step.samples, size)
    first = step.first + rank * each + min(rank, over)
    return first, first + each + (rank < over)


def parts_of(
    step: Step, share: tuple[int, int], largest: int | None, accumulate: int = 1
) -> Sequence[Part]:
    """The share in as few parts of at most `largest` samples as will do, nearly equal, a multiple of
    `accumulate` in number (the script divides its loss by that itself)."""
    first, end = share
    count = end - first
    pieces = max(1, -(-count // largest) if largest else 1)
    pieces = -(-pieces // accumulate) * accumulate
    each, over = divmod(count, pieces)
    parts: list[Part] = []
    for number in range(pieces):
        size = each + (number < over)
        weight = size * accumulate / step.samples
        parts.append(Part(first, first + size, weight, number == pieces - 1))
        first += size
    return parts
