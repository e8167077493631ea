"""Many buckets through one codec, in an order that is the same on every rank."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import torch

from shoal.elastic.codecs.base import Bucket, Codec, Rounds

__all__ = ["Exchanges"]

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
