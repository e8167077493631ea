"""The buckets of one rank, and how they are exchanged: as they are, or through a codec.

As they are, the control vector rides at the end of the last bucket. A codec never sees it: then it is
summed by itself, next to the last bucket. Either way `finished` refers to `buffers(layout)`: a finished
buffer holds the sum, and a peer that lacks it gets a copy of it, never its coded form.

A group of one exchanges nothing, so it uses no codec. What a codec left out of the sums when the group
changes is carried over, by parameter, and added to the next gradients.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Protocol

import torch

from shoal.elastic import codecs
from shoal.elastic.allreduce.groups import Group, Pending
from shoal.elastic.allreduce.layout import Layout
from shoal.elastic.allreduce.layout import plan as lay_out
from shoal.elastic.codecs.base import Exchanges, views
from shoal.elastic.codecs.catalogue import Plan
from shoal.elastic.errors import GroupFailed

__all__ = ["BucketManager", "Coded", "Sending", "Whole", "Writers", "buffers"]


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

    def send(self, group: Group) -> None:
        """Send the next bucket, and with the last the control vector.

        Raises:
            GroupFailed: the group is broken.
        """

    def finish(self, group: Group) -> None:
        """Until every buffer is finished.

        Raises:
            GroupFailed: not every one will be.
        """

    def abandon(self, group: Group) -> None:
        """The group is broken and interrupted: nothing writes into the buckets after this."""

    def complete(self) -> None:
        """Every buffer holds the sum: those that were not finished here have come from peers."""

    def commit(self) -> None:
        """The sums are used: what a codec left out of them is owed now."""

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


class Writers:
    """Of the buckets on one device. On the CPU there is nothing to order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._of: dict[int, set[torch.cuda.Stream]] = {}

    def wrote(self, bucket: int) -> None:
        """The current stream has written into this bucket."""
        if self._on_gpu:
            self._of.setdefault(bucket, set()).add(torch.cuda.current_stream(self._device))

    def join(self, bucket: int) -> None:
        """What the current stream does next comes after everything that was written into the bucket."""
        if self._on_gpu:
            here = torch.cuda.current_stream(self._device)
            for stream in self._of.pop(bucket, ()):
                if stream != here:
                    here.wait_stream(stream)


class BucketManager:
    """Of one rank. `sending` holds from one `begin_step` to the next; `places[i]`: the bucket that
    parameter i is in, and its gradient's place there."""

    def __init__(self, parameters: Sequence[torch.Tensor], extra: int, plan: Plan) -> None:
        """`extra`: elements of the control vector."""
        self._codec = plan.codec
        self._current = "none"
        self.layout = lay_out(parameters, extra, plan.bucket_bytes)
        self.places = [
            (number, self.layout.buckets[number].views[position])
            for number, position in self.layout.place
        ]
        self.sending: Sending = Whole(self.layout)
        self.carried: dict[int, torch.Tensor] = {}

    def begin_step(self, group: Group) -> None:
        """Choose how the next step's buckets are exchanged in this group."""
        wanted = "none" if group.size == 1 else self._codec
        if wanted == self._current:
            return
        self._release()
        self._current = wanted
        if wanted == "none":
            self.sending = Whole(self.layout)
        else:
            self.sending = Coded(self.layout, codecs.make(wanted))
        self.sending.begin_step()

    def commit(self) -> None:
        """The sums of this step are used."""
        self.sending.commit()
        self.carried = {}

    def keep(self, index: int, total: torch.Tensor, group: Group) -> None:
        """No rank used this parameter, so `total` is what all ranks added for it, and is not used
        either: each rank owes its part of it again."""
        if isinstance(self.sending, Coded):
            self.carried[index] = total / group.size

    def owe_nothing(self) -> None:
        """What was owed belongs to a state that this rank has given up."""
        self.sending.release()
        self.carried = {}

    def _release(self) -> None:
        for index, owed in self.sending.release().items():
            carried = self.carried.get(index)
            self.carried[index] = owed if carried is None else carried + owed
