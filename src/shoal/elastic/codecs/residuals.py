"""Error feedback: what a codec left out of one step is added to the gradients of the next.

Seide and others, "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy and others, "Error
Feedback Fixes SignSGD", 2019, arXiv 1901.09847. Each rank owes its own part: the sum of what all owe is
exactly what the decoded sum lacks.
"""

from __future__ import annotations

import torch

from shoal.elastic.codecs.base import Bucket

__all__ = ["Residuals"]


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
