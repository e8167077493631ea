"""How full buckets travel: as they are, or through a codec.

As they are, the control vector rides at the end of the last one. A codec never sees it: then it is
summed by itself, next to the last bucket. Either way `finished` speaks of `buffers(layout)`: what a
finished buffer holds is the sum, and what a peer lacks is a copy of it, never its coded form.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
from typing import Protocol

import torch

from shoal.elastic import codecs
from shoal.elastic.allreduce.groups import Group, Pending
from shoal.elastic.allreduce.layout import Layout
from shoal.elastic.codecs.base import views
from shoal.elastic.codecs.exchange import Exchanges
from shoal.elastic.errors import GroupFailed

__all__ = ["Coded", "Sending", "Whole", "buffers"]


def buffers(layout: Layout) -> list[torch.Tensor]:
    """What a peer needs to have every bucket and the control vector: flat tensors, in order."""
    flats = [bucket.flat for bucket in layout.buckets]
    return flats if layout.control_rides else [*flats, layout.control]


class Sending(Protocol):
    """Of one layout, for the training thread. Buckets are sent one by one, in the same order on every
    rank; then `finish`."""

    @property
    def sent(self) -> int:
        """How many buckets of this step have been sent."""
        ...

    @property
    def finished(self) -> tuple[bool, ...]:
        """Of this step: which buffers hold the sum over all ranks."""
        ...

    def begin_step(self) -> None:
        """Nothing has been sent; what an unfinished step before left out of the sums is void."""
        ...

    def send(self, group: Group) -> None:
        """Send the next bucket, and with the last the control vector.

        Raises:
            GroupFailed: the group is broken.
        """
        ...

    def finish(self, group: Group) -> None:
        """Until every buffer is finished.

        Raises:
            GroupFailed: not every one will be.
        """
        ...

    def abandon(self, group: Group) -> None:
        """The group is broken and interrupted: nothing writes into the buckets after this."""
        ...

    def complete(self) -> None:
        """Every buffer holds the sum: those that were not finished here have come from peers."""
        ...

    def commit(self) -> None:
        """The sums are used: what a codec left out of them is owed now."""
        ...

    def release(self) -> dict[int, torch.Tensor]:
        """By parameter, what this rank owes, of the gradient's shape; it is the caller's to pay now."""
        ...


class Whole:
    """Buckets as they are. See `Sending`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._buffers = buffers(layout)
        self._pending: list[Pending | None] = []
        self._finished = [False] * len(self._buffers)

    @property
    def sent(self) -> int:
        """See `Sending`."""
        return min(len(self._pending), len(self._layout.buckets))

    @property
    def finished(self) -> tuple[bool, ...]:
        """See `Sending`."""
        return tuple(self._finished)

    def begin_step(self) -> None:
        """See `Sending`."""
        self._pending.clear()
        self._finished = [False] * len(self._buffers)

    def send(self, group: Group) -> None:
        """See `Sending`."""
        self._pending.append(group.sum(self._buffers[len(self._pending)]))
        if len(self._pending) == len(self._layout.buckets) < len(self._buffers):
            self._pending.append(group.sum(self._buffers[-1]))

    def finish(self, group: Group) -> None:
        """See `Sending`."""
        for number, pending in enumerate(self._pending):
            if pending is not None:
                group.wait(pending)
            self._finished[number] = True
            self._pending[number] = None

    def abandon(self, group: Group) -> None:
        """See `Sending`."""
        for number, pending in enumerate(self._pending):
            if pending is not None:
                with contextlib.suppress(GroupFailed):
                    group.wait(pending)
                    self._finished[number] = True
            self._pending[number] = None

    def complete(self) -> None:
        """See `Sending`."""
        self._finished = [True] * len(self._buffers)

    def commit(self) -> None:
        """Nothing was left out."""

    def release(self) -> dict[int, torch.Tensor]:
        """Nothing."""
        return {}


class Coded:
    """Buckets through a codec, the control vector apart from them. See `Sending`."""

    def __init__(self, layout: Layout, codec: codecs.Codec) -> None:
        self._layout = layout
        self._codec = codec
        self._buckets = [_bucket(number, layout) for number in range(len(layout.buckets))]
        self._exchanges: Exchanges[Pending] | None = None
        self._control: Pending | None = None
        self._summed = [False] * len(self._buckets)
        self._heard = False
        self._sent = 0
        self._epoch = 0

    @property
    def sent(self) -> int:
        """See `Sending`."""
        return self._sent

    @property
    def finished(self) -> tuple[bool, ...]:
        """See `Sending`."""
        if self._layout.control_rides:
            return (*self._summed[:-1], self._summed[-1] and self._heard)
        return (*self._summed, self._heard)

    def begin_step(self) -> None:
        """See `Sending`."""
        self._codec.rollback()
        self._exchanges = self._control = None
        self._summed = [False] * len(self._buckets)
        self._heard = False
        self._sent = 0

    def send(self, group: Group) -> None:
        """See `Sending`."""
        if self._exchanges is None:
            if group.epoch != self._epoch:
                self._epoch = group.epoch
                self._codec.view_changed(group.epoch)
            self._exchanges = Exchanges(self._codec, group.sum, group.wait)
        self._exchanges.begin(self._buckets[self._sent])
        self._sent += 1
        if self._sent == len(self._buckets):
            self._control = group.sum(self._layout.control)

    def finish(self, group: Group) -> None:
        """See `Sending`."""
        if self._exchanges is not None and self._control is not None:
            for number in self._exchanges.finish():
                self._summed[number] = True
            group.wait(self._control)
            self._heard = True

    def abandon(self, group: Group) -> None:
        """See `Sending`."""
        if self._exchanges is not None:
            for number in self._exchanges.abandon(GroupFailed):
                self._summed[number] = True
        if self._control is not None and not self._heard:
            with contextlib.suppress(GroupFailed):
                group.wait(self._control)
                self._heard = True
        self._exchanges = self._control = None

    def complete(self) -> None:
        """See `Sending`."""
        for number, here in enumerate(self._summed):
            if not here:
                self._codec.forget(number)
        self._summed = [True] * len(self._summed)
        self._heard = True

    def commit(self) -> None:
        """See `Sending`."""
        self._codec.commit()

    def release(self) -> dict[int, torch.Tensor]:
        """See `Sending`."""
        found: dict[int, torch.Tensor] = {}
        for number, flat in self._codec.owed().items():
            indices = self._layout.buckets[number].indices
            found.update(zip(indices, views(flat, self._buckets[number].shapes), strict=True))
            self._codec.forget(number)
        return found


def _bucket(number: int, layout: Layout) -> codecs.Bucket:
    bucket = layout.buckets[number]
    elements = sum(view.numel() for view in bucket.views)
    return codecs.Bucket(number, bucket.flat[:elements], tuple(tuple(v.shape) for v in bucket.views))
