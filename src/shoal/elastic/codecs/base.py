"""The interface of codecs, error feedback, and the exchange of many buckets through one codec.

A codec turns a bucket into tensors to be summed, round after round, and the sums back. With error
feedback, what it left out of one step is added to the gradients of the next: Seide and others, "1-Bit
Stochastic Gradient Descent", Interspeech 2014; Karimireddy and others, "Error Feedback Fixes SignSGD",
2019, arXiv 1901.09847. Each rank owes its own part: the sum of the residuals of all ranks is exactly
what the decoded sum lacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

__all__ = ["Bucket", "Codec", "Exchanges", "Residuals", "Rounds", "views"]

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

    def rollback(self) -> None:
        """That step will be run again: what was owed before it is owed still."""

    def forget(self, number: int) -> None:
        """This bucket's sum came from a peer: what this rank's part in it left out is unknown, so it
        owes nothing (at most one step's rounding is lost)."""

    def view_changed(self, epoch: int) -> None:
        """From here on exchanges are among the members of that epoch."""

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


class Residuals:
    """Of one rank, by bucket. Two buffers a bucket, so that a step can be undone without a copy."""

    def __init__(self) -> None:
        self._owed: dict[int, torch.Tensor] = {}
        self._next: dict[int, torch.Tensor] = {}
        self._spare: dict[int, torch.Tensor] = {}

    def pay(self, bucket: Bucket, work: torch.Tensor) -> None:
        """Add what is owed to `work`, the bucket's content.

        Raises:
            ValueError: what is owed is of another bucket.
        """
        owed = self._owed.get(bucket.number)
        if owed is None:
            return
        if owed.shape != work.shape:
            raise ValueError(
                f"bucket {bucket.number} has {work.numel()} elements, its residual {owed.numel()}: "
                "new buckets need a new codec"
            )
        work.add_(owed)

    def owe(self, bucket: Bucket, work: torch.Tensor) -> torch.Tensor:
        """Where the bucket's residual of this step is to be written: like `work`, its content is old."""
        buffer = self._next.pop(bucket.number, None)
        if buffer is None:
            buffer = self._spare.pop(bucket.number, None)
        if buffer is None or buffer.shape != work.shape:
            buffer = torch.zeros_like(work)
        self._next[bucket.number] = buffer
        return buffer

    def keep(self, number: int) -> None:
        """What was written of this bucket is void: its gradients were not finite, and their step will be
        skipped. What was owed stays owed."""
        buffer = self._next.pop(number, None)
        if buffer is not None:
            self._spare[number] = buffer

    def commit(self) -> None:
        """What was written is owed."""
        for number, buffer in self._next.items():
            before = self._owed.get(number)
            if before is not None:
                self._spare[number] = before
            self._owed[number] = buffer
        self._next = {}

    def rollback(self) -> None:
        """What was written is void."""
        self._spare.update(self._next)
        self._next = {}

    def forget(self, number: int) -> None:
        """Nothing is owed of this bucket any more, whatever `commit` comes."""
        self._next.pop(number, None)
        self._owed.pop(number, None)

    def owed(self) -> dict[int, torch.Tensor]:
        """What is owed, by bucket."""
        return dict(self._owed)


Pending = TypeVar("Pending")


class Exchanges(Generic[Pending]):
    """The exchanges of one step. `launch` begins to sum a tensor over all ranks, `wait` waits for it.

    First rounds are sent as buckets become full, in the order of `begin`; later rounds follow in
    lockstep: the second round of every bucket, then the third. What `launch` and `wait` raise goes
    through; then `abandon`.
    """

    def __init__(
        self,
        codec: Codec,
        launch: Callable[[torch.Tensor], Pending],
        wait: Callable[[Pending], None],
    ) -> None:
        self._codec = codec
        self._launch = launch
        self._wait = wait
        self._open: list[tuple[int, Rounds, Pending]] = []

    def begin(self, bucket: Bucket) -> None:
        """Encode a bucket and send its first round."""
        rounds = self._codec.exchange(bucket)
        self._open.append((bucket.number, rounds, self._launch(next(rounds))))

    def finish(self) -> Iterator[int]:
        """The numbers of the buckets, each as soon as it holds the sum; afterwards all do."""
        while self._open:
            later: list[tuple[int, Rounds, Pending]] = []
            while self._open:
                number, rounds, pending = self._open[0]
                self._wait(pending)
                tensor = next(rounds, None)
                if tensor is not None:
                    later.append((number, rounds, self._launch(tensor)))
                del self._open[0]
                if tensor is None:
                    yield number
            self._open = later

    def abandon(self, failure: type[Exception]) -> list[int]:
        """Wait for what is under way, of which much fails with `failure`: the buckets that hold the sum
        all the same. Those that would need another round never will."""
        came: list[int] = []
        for number, rounds, pending in self._open:
            with contextlib.suppress(failure):
                self._wait(pending)
                if next(rounds, None) is None:
                    came.append(number)
            rounds.close()
        self._open = []
        return came
